"""Nothing lost: kills -9, races of two processes, a full disk, and every setting with values that make no sense.

    python -m benchmarks.robustness                       # all of it, from the root of the repository: about an hour
    python -m benchmarks.robustness kills --count 100     # at random moments of trainings, sweeps and studies
    python -m benchmarks.robustness races --count 20      # two processes, one folder
    python -m benchmarks.robustness disk                  # full from the first, second, … write of a run on (needs cc)
    python -m benchmarks.robustness settings              # every setting of every recipe

Whatever happens to a run, it must end as the undisturbed one: the same metrics, the same weights, to the last bit.
Commands run in forks of this process, which has imported all they need; those of studies are processes of their own.
"""

import argparse
import csv
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from horosphere import catalogue
from horosphere.cli import main as horosphere
from horosphere.errors import UserError
from horosphere.recipes import read_recipe, recipe_names
from horosphere.tables import table_lines
from horosphere.train.recipe import Recipe
from tests.tasks.tiny import KINDS, ON_TOWERS, TINY, write_data

ROOT = Path(__file__).resolve().parents[1]
CLOCK = ("seconds", "_per_second")  # how names of numbers end that the clock decides
PATIENCE = 120.0  # seconds until a command hangs
HASTE = 10.0  # seconds until a wrong setting hangs
MEMORY = 8 * 10**9  # bytes that a command with a wrong setting may take


# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    code: int  # below zero: the signal that ended it
    said: str  # standard error
    seconds: float
    bytes: int  # of memory, the most it had

    @property
    def clean(self) -> bool:
        """A result, or one line and exit code 2."""
        lines = [line for line in self.said.splitlines() if line.startswith("horosphere: ")]
        return self.code == 0 or (self.code == 2 and len(lines) == 1 and "Traceback" not in self.said)


@dataclass
class Command:
    """`horosphere WORDS`, in a fork of this process and a group of its own."""

    words: Sequence[str]
    limit: int = 0  # bytes of memory; 0: none
    env: dict[str, str] | None = None

    def start(self) -> "Command":
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the command)
        self.begun = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            self._run()
        return self

    def _run(self) -> None:
        code = 70
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self.errors.fileno(), 2)
            os.environ |= self.env or {}
            if self.limit:
                resource.setrlimit(resource.RLIMIT_DATA, (self.limit, self.limit))
            code = horosphere([str(word) for word in self.words])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)

    def running(self) -> bool:
        self.status: Any = os.wait4(self.pid, os.WNOHANG)
        return bool(self.status[0] == 0)

    def wait(self, patience: float = PATIENCE) -> Ended:
        while self.running():
            if time.monotonic() > self.begun + patience:
                self.kill()
                os.wait4(self.pid, 0)
                return Ended(-signal.SIGALRM, self._said(), patience, 0)
            time.sleep(0.005)
        _, status, used = self.status
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, self._said(), time.monotonic() - self.begun, used.ru_maxrss * 1024)

    def _said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


def run(*words: Any, **how: Any) -> Ended:
    return Command([str(word) for word in words], **how).start().wait()


# -- what a run came to -----------------------------------------------------------------------------------------------


def outcome(folder: Path) -> dict[str, Any]:
    """All that a command leaves and the clock does not decide, by the names of files."""
    found: dict[str, Any] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(file.relative_to(folder))
        if file.name == "metrics.jsonl":
            found[name] = [_timeless(json.loads(line)) for line in file.read_text().splitlines()]
        elif file.suffix == ".safetensors":
            found[name] = {key: (t.dtype, t.flatten().tolist()) for key, t in load_file(file).items()}
        elif file.name == "results.csv":
            found[name] = [_timeless(row) for row in csv.DictReader(file.open(newline=""))]
        elif file.name == "study.json":
            found[name] = [row["scores"] for row in json.loads(file.read_text())["rows"]]
        else:
            found[name] = None
    return found


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.endswith(CLOCK)}


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """What two outcomes differ in; "" where they are the same."""
    names = [name for name in one.keys() | other.keys() if one.get(name, 0) != other.get(name, 0)]
    return ", ".join(sorted(names)[:3])


# -- jobs, each of some seconds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    name: str
    words: tuple[str, ...]
    begun: str  # the file, below the folder, that shows that it is under way
    resume: tuple[str, ...] = ("--continue",)

    def command(self, folder: Path, *more: str, **how: Any) -> Command:
        return Command([*self.words, "--quiet", "--out", str(folder), *more], **how)


def jobs(folder: Path) -> list[Job]:
    """A training of each kind, a sweep, a study; their data lie in the folder."""
    every = ("log_every=7", "eval_every=40", "save_every=20", "keep=2")
    found = []
    for kind, steps in (("language", 240), ("pictures", 160), ("nodes", 400)):
        recipe, said = TINY[kind]
        (folder / kind).mkdir()
        data = write_data(kind, folder / kind)
        words = ("train", recipe, f"data={data}", *said, *every, f"steps={steps}", "--device", "cpu")
        found.append(Job(kind, words, "metrics.jsonl"))
    toys = ("--n=60", "--widths=4,8,16", "--gammas=-0.5,0.3", "--steps=6000", "--batch=64", "--seeds=3")
    found.append(Job("sweep", ("superposition", "sweep", *toys), "sweep.json"))
    data, (_, said) = write_data("nodes", folder), TINY["nodes"]
    study = ("compare", data, *said, *every, "steps=200", "--geometries", "lorentz,euclidean", "--seeds", "2")
    found.append(Job("study", study, "lorentz-0/metrics.jsonl", resume=()))
    return found


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="robustness.") as folder:
        os.environ["HOROSPHERE_CACHE"] = f"{folder}/cache"
        yield Path(folder)


def references(found: Sequence[Job], folder: Path) -> dict[str, tuple[dict[str, Any], float]]:
    """What each job comes to when nobody disturbs it, and the seconds from its first file to its end."""
    known = {}
    for job in found:
        command = job.command(folder / f"{job.name}-undisturbed").start()
        begin = when(command, folder / f"{job.name}-undisturbed" / job.begun)
        ended = command.wait()
        assert ended.code == 0, ended.said
        known[job.name] = outcome(folder / f"{job.name}-undisturbed"), max(0.2, time.monotonic() - begin)
        print(f"{job.name}: {known[job.name][1]:.1f} s of work, undisturbed", file=sys.stderr, flush=True)
    return known


def when(command: Command, file: Path) -> float:
    """The moment a file appears, or the command ends."""
    while command.running() and not file.exists():
        time.sleep(0.002)
    return time.monotonic()


# -- kills ------------------------------------------------------------------------------------------------------------


def kills(count: int, chance: random.Random) -> list[list[str]]:
    """kill -9 at random moments, up to four times a run, then on to the end."""
    rows = []
    with workplace() as folder:
        found = jobs(folder)
        known = references(found, folder)
        for job in found:
            expected, seconds = known[job.name]
            killed = same = runs = 0
            while killed < -(-count // len(found)):
                out = folder / f"{job.name}-{runs}"
                runs += 1
                for number in range(chance.randint(1, 4)):
                    command = job.command(out, *(job.resume if number else ())).start()
                    if chance.random() < 0.8:  # the others are killed while they begin
                        when(command, out / job.begun)
                    time.sleep(chance.random() * seconds * (0.6 if number else 1.0))
                    if not command.running():
                        break
                    command.kill()
                    os.wait4(command.pid, 0)
                    killed += 1
                more = (
                    job.resume if (out / job.begun.rpartition("/")[2]).exists() or not job.resume else ("--continue",)
                )
                ended = job.command(out, *more).start().wait()
                wrong = ended.said if ended.code else difference(expected, outcome(out))
                same += not wrong
                if wrong:
                    print(f"{job.name}: {wrong}", file=sys.stderr, flush=True)
                shutil.rmtree(out)
            litter = [path.name for path in folder.iterdir() if path.name.startswith(f".{job.name}")]
            rows.append([job.name, str(killed), str(runs), str(same), str(len(litter))])
            print(f"{job.name}: {killed} kills, {same} of {runs} runs the same", file=sys.stderr, flush=True)
    return rows


# -- races ------------------------------------------------------------------------------------------------------------


def races(count: int, chance: random.Random) -> list[list[str]]:
    """Two processes on one folder: one does the work, the other is told so; both may be told to replace or go on."""
    outcomes: dict[str, Counter[str]] = {}
    with workplace() as folder:
        found = jobs(folder)
        known = references(found, folder)
        ways = [
            ((), ()),
            (("--continue",), ("--continue",)),
            (("--overwrite",), ("--overwrite",)),
            ((), ("--overwrite",)),
        ]
        for number in range(count):
            job, way = found[number % len(found)], ways[number // len(found) % len(ways)]
            way = tuple(tuple(word for word in words if job.resume or word != "--continue") for words in way)
            out = folder / f"{job.name}-{number}"
            if "--overwrite" in way[0]:
                shutil.copytree(folder / f"{job.name}-undisturbed", out)
            first = job.command(out, *way[0]).start()
            time.sleep(chance.random() * known[job.name][1] * chance.choice([0.0, 1.0]))
            second = job.command(out, *way[1]).start()
            ends = [first.wait(), second.wait()]
            wrong = difference(known[job.name][0], outcome(out))
            told = all(end.clean for end in ends) and any(end.code == 0 for end in ends)
            tally = outcomes.setdefault(job.name, Counter())
            tally["races"] += 1
            tally["one worked, one was told"] += sorted(end.code for end in ends) == [0, 2]
            tally["the run as undisturbed"] += told and not wrong
            if wrong or not told:
                print(f"{job.name} {way}: {wrong} {[end.said for end in ends]}", file=sys.stderr, flush=True)
    heads = ("races", "one worked, one was told", "the run as undisturbed")
    return [[name, *(str(tally[head]) for head in heads)] for name, tally in outcomes.items()]


# -- a full disk ------------------------------------------------------------------------------------------------------


def disk(count: int, chance: random.Random) -> list[list[str]]:
    """The disk is full from the N-th write of a run on, for every N; then there is room, and the run goes on."""
    rows = []
    with workplace() as folder:
        library = folder / "failing_disk.so"
        source = Path(__file__).with_name("failing_disk.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        if os.environ.get("LD_PRELOAD") != str(library) and "failing_disk" not in os.environ.get("LD_PRELOAD", ""):
            kept = shutil.copy(library, Path(tempfile.gettempdir()) / f"failing_disk-{os.getpid()}.so")
            os.environ["LD_PRELOAD"] = str(kept)  # of this process too: its forks do the writing
            os.execv(sys.executable, [sys.executable, "-m", "benchmarks.robustness", "disk"])
        for job in jobs(folder)[:4]:
            short = [word if not word.startswith("steps=") else "steps=6" for word in job.words]
            short = [word if not word.startswith("save_every=") else "save_every=2" for word in short]
            short = [word if not word.startswith("eval_every=") else "eval_every=3" for word in short]
            job = Job(job.name, tuple(short), job.begun, job.resume)
            ended = job.command(folder / f"{job.name}-undisturbed").start().wait()
            assert ended.code == 0, ended.said
            expected = outcome(folder / f"{job.name}-undisturbed")
            number = told = same = 0
            while True:
                number += 1
                place = folder / f"{job.name}-{number}"
                place.mkdir()
                env = {"FULL_BELOW": str(place.resolve()), "FULL_FROM": str(number)}
                ended = job.command(place / "run", env=env).start().wait()
                if ended.code == 0:
                    break
                named = ended.clean and str(place.name) in ended.said
                again = job.command(place / "run", *job.resume).start().wait()
                wrong = again.said if again.code else difference(expected, outcome(place / "run"))
                left = [path.name for path in place.iterdir() if path.name != "run"]
                told, same = told + named, same + (not wrong and not left)
                if wrong or left or not named:
                    print(f"{job.name}, write {number}: {wrong} {left} {ended.said}", file=sys.stderr, flush=True)
                shutil.rmtree(place)
            rows.append([job.name, str(number - 1), str(told), str(same)])
            print(f"{job.name}: {number - 1} writes, {told} told, {same} the same", file=sys.stderr, flush=True)
    Path(os.environ["LD_PRELOAD"]).unlink()
    return rows


# -- settings ---------------------------------------------------------------------------------------------------------

ODD = ("-1", "0", "1e30", "nan", "inf", "text", "", "1,2,3")


def settings_tried(count: int, chance: random.Random) -> list[list[str]]:
    """Every setting of every recipe with values that make no sense. What a recipe takes, a training is tried with."""
    tally: Counter[str] = Counter()
    begin = time.monotonic()
    for name in recipe_names():
        for setting in catalogue.known_settings(read_recipe(name)):
            for value in ODD:
                tally["tried"] += 1
                try:
                    Recipe.read(name, ["data=nowhere.txt", f"{setting}={value}"])
                    tally["taken"] += 1
                except UserError as error:
                    tally["told"] += "\n" not in str(error)
    seconds = time.monotonic() - begin
    cells = [str(tally[name]) for name in ("tried", "told", "taken")]
    with workplace() as folder:
        trained = [_trained(kind, folder, count, chance) for kind in KINDS]
    return [["recipes, read", *cells, "", "", f"{seconds:.0f} s"], *trained]


def _trained(kind: str, folder: Path, count: int, chance: random.Random) -> list[str]:
    """Trainings of one kind with what its recipe takes."""
    recipe, said = TINY[kind]
    (folder / kind).mkdir()
    data = write_data(kind, folder / kind)
    towers = [f"towers={folder / kind / 'clip'}"] if kind in ON_TOWERS else []
    base = [f"data={data}", *towers, *said, "steps=2"]
    taken = []
    for setting in catalogue.known_settings(read_recipe(recipe, base)):
        for value in ODD:
            try:
                Recipe.read(recipe, [*base, f"{setting}={value}"])
                taken.append(f"{setting}={value}")
            except UserError:
                pass
    if count and len(taken) > count:
        taken = chance.sample(taken, count)
    tally: Counter[str] = Counter()
    longest, most = 0.0, 0
    for number, setting in enumerate(taken):
        out = folder / f"{kind}-{number}"
        command = Command(["train", recipe, *base, setting, "--quiet", "--device", "cpu", "--out", str(out)], MEMORY)
        ended = command.start().wait(HASTE)
        tally["result" if ended.code == 0 else "told" if ended.clean else "wrong"] += 1
        longest, most = max(longest, ended.seconds), max(most, ended.bytes)
        if not ended.clean:
            last = ended.said.strip().splitlines()[-1:] or [f"code {ended.code}"]
            print(f"{kind} {setting}: {last[0]}", file=sys.stderr, flush=True)
        shutil.rmtree(out, ignore_errors=True)
    print(f"{kind}: {len(taken)} trainings, {dict(tally)}", file=sys.stderr, flush=True)
    cells = [str(len(taken)), str(tally["told"]), str(tally["result"]), str(tally["wrong"])]
    return [f"{kind}, trained", *cells, f"{most / 1e9:.1f} GB", f"{longest:.1f} s"]


# -- all of it --------------------------------------------------------------------------------------------------------

PARTS: dict[str, tuple[Callable[[int, random.Random], list[list[str]]], int, tuple[str, ...]]] = {
    "kills": (kills, 100, ("job", "kills", "runs", "the same", "litter")),
    "races": (races, 20, ("job", "races", "one worked, one was told", "the same")),
    "disk": (disk, 0, ("job", "writes", "told with the path", "the same after")),
    "settings": (settings_tried, 0, ("what", "tried", "told", "taken", "wrong", "memory", "longest")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which of them (default all)")
    parser.add_argument("--count", type=int, help="how many (default 100 kills, 20 races, all writes, all settings)")
    parser.add_argument("--seed", type=int, default=0, help="of what chance decides")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"}
    import horosphere.tasks.language  # what forks would import one by one
    import horosphere.tasks.pictures  # noqa: F401

    for name in args.parts or PARTS:
        work, count, heads = PARTS[name]
        rows = work(count if args.count is None else args.count, random.Random(args.seed))
        print("\n".join(table_lines(heads, rows)), flush=True)


if __name__ == "__main__":
    main()
