"""Trainings side by side: as many as keep a machine busy. One that fails does not end the others."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryFile

from horosphere.stopping import sigterm_as_ctrl_c
from horosphere.study.executors import Outcome, _die_with_parent, last_line
from horosphere.study.jobs import POLL, RETRIES


def work(
    wanted: Callable[[], Mapping[str, Sequence[str]]],
    at_once: int,
    minutes: float,
    ended: Callable[[str, Outcome], None],
) -> None:
    """Run `python WORDS` for what is wanted, the first first, until nothing is or the time is over.

    wanted: {name: words} of what is not done yet; asked again as places come free, so that it may depend on what ended.
    ended(name, outcome): called when one has. One that complained is not begun again, one that was killed is. At the
    end, on Ctrl-C and on SIGTERM those under way are told to stop, and save.
    """
    until, running, lost, failed = time.monotonic() + 60 * minutes, {}, Counter[str](), set()
    with sigterm_as_ctrl_c():
        try:
            while time.monotonic() < until:
                todo = wanted() if len(running) < at_once else {}
                waiting = [name for name in todo if name not in running and name not in failed]
                for name in waiting[: at_once - len(running)]:
                    running[name] = _begin(todo[name], at_once)
                if not running:
                    return
                time.sleep(POLL)
                for name, outcome in [(name, _outcome(*begun)) for name, begun in running.items()]:
                    if outcome is None:
                        continue
                    del running[name]
                    lost[name] += outcome.lost
                    if outcome.lost and lost[name] <= RETRIES:
                        continue
                    if outcome.code:
                        failed.add(name)
                    ended(name, outcome)
            print(f"{minutes:g} minutes are over: the same command goes on", flush=True)
        except KeyboardInterrupt:
            print("stopped: the same command goes on", flush=True)
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.wait()


def _begin(words: Sequence[str], at_once: int) -> tuple[subprocess.Popen, TemporaryFile]:
    threads = str(max(1, (os.cpu_count() or 1) // at_once))  # processes that share cores must not fight for them
    errors = TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
    place = {"env": {"OMP_NUM_THREADS": threads, **os.environ}, "preexec_fn": _die_with_parent}
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=errors, **place), errors


def _outcome(process: subprocess.Popen, errors: TemporaryFile) -> Outcome | None:
    return None if process.poll() is None else Outcome(process.returncode, last_line(errors))
