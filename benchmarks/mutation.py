"""Would the tests notice? Small bugs are planted one at a time, and the tests that run the changed line are run.

    python benchmarks/mutation.py --rooms nn models --count 30       # 30 bugs a room; the same ones for the same --seed
    python benchmarks/mutation.py --rooms nn models --count 30 --resume    # goes on after Ctrl-C
    python benchmarks/mutation.py --rooms nn models --count 30 --resume --again   # tries survivors again: new tests?

`mutations.py` says which bugs there are and what is left out. Each is tried in a copy of the tree. The first call runs
the suite once to learn which test runs which line, and how long it takes; later calls run only test files that changed.
Tests of the file's own name go first, then those of its room, then others; quick ones before slow ones, --seconds of
them at most. So "alive" is an upper bound. A hang counts as caught. `equivalent_mutations.txt` names, by hand, bugs
that change nothing one could observe, and why; they are counted apart.

Why no tool of the field: mutmut 3 mutates functions only, keeps all mutants of a file in it behind a switch (compiled
kernels and dataclasses do not survive that) and forks a process that has torch's threads; cosmic-ray has one test
command for all mutants and changes the source in place. Neither samples, and these 28,000 mutants would take weeks.
"""

import argparse
import hashlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

from mutations import Mutation, mutations, scope, usable  # noqa: E402

KEPT = ROOT / "build" / "mutation"  # git ignores build/
EQUIVALENT = HERE / "equivalent_mutations.txt"
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=no", "--no-header"]
# Slow, and about the house rather than its rooms.
NOT_ASKED = ("tests/test_package.py", "tests/test_demo.py", "tests/test_layers.py")


def copy_tree(target: Path) -> Path:
    """The tree as it is now, with changes that are not committed."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()[:16]


def environment(tree: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(tree), str(HERE)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **more}


# Who runs which line


def coverage_map(jobs: int, tests: Sequence[str]) -> dict[str, dict[str, Any]]:
    """{test: {"file": test file, "seconds": ..., "lines": {file: [line]}}} of the tests that pass."""
    store, source = KEPT / "map.json", digest(ROOT.glob("horosphere/**/*.py"))
    kept = json.loads(store.read_text()) if store.is_file() else {}
    kept = kept if kept.get("source") == source else {"source": source, "files": {}, "tests": {}}
    now = {str(path.relative_to(ROOT)): digest([path]) for name in tests for path in _test_files(ROOT / name)}
    now = {name: mark for name, mark in now.items() if not name.startswith(NOT_ASKED)}
    changed = [name for name, mark in now.items() if kept["files"].get(name) != mark]
    if changed:
        print(f"learning which lines {len(changed)} test files run", flush=True)
        known = {name: test for name, test in kept["tests"].items() if test["file"] not in changed}
        kept["tests"] = known | _trace(changed, jobs)
        kept["files"] |= {name: now[name] for name in changed}
        KEPT.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps(kept))
    return {name: test for name, test in kept["tests"].items() if test["file"] in now}


def _test_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.glob("**/test_*.py"))


def _trace(files: Sequence[str], jobs: int) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        tree, out = copy_tree(Path(folder).resolve() / "tree"), Path(folder) / "out"
        out.mkdir()
        (tree / "sitecustomize.py").write_text(
            f"import sys; sys.path.append({str(HERE)!r}); import mutation_trace; mutation_trace.trace_child()"
        )
        env = environment(tree, MUTATION_TRACE=str(out), MUTATION_ROOT=str(tree))
        split = ["-n", str(jobs), "--dist", "loadfile"]
        subprocess.run([*PYTEST, "-p", "mutation_trace", *split, *files], cwd=tree, env=env, check=False)
        parts = [json.loads(path.read_text()) for path in out.glob("*.json")]
    lines: dict[str, dict[str, set[int]]] = {}
    for part in parts:
        for context, of in part["lines"].items():
            for file, at in of.items():
                lines.setdefault(context, {}).setdefault(file, set()).update(at)
    found = {name: test for part in parts for name, test in part["tests"].items()}
    unused = [name for name, test in found.items() if test.get("outcome") == "failed"]
    print(f"{len(found)} tests; {len(unused)} fail without any bug and are not asked: {' '.join(unused)}", flush=True)
    answer = {}
    for name, test in found.items():
        if "outcome" not in test and "seconds" in test:
            whole: dict[str, set[int]] = {}
            for context in (name, *test["fixtures"]):
                for file, at in lines.get(context, {}).items():
                    whole.setdefault(file, set()).update(at)
            of = {file: sorted(at) for file, at in whole.items()}
            answer[name] = {"file": name.partition("::")[0], "seconds": test["seconds"], "lines": of}
    return answer


def tests_for(mutation: Mutation, known: dict[str, dict[str, Any]], seconds: float) -> tuple[list[str], float]:
    """Names of the tests that run the line, in the order in which to ask them, and the seconds they take."""
    # a default of an argument runs when the file is imported, as constants do, and compiled code is not seen running
    for lines in ({mutation.line}, set(scope(ROOT, mutation)[1]), None):
        at = [n for n, test in known.items() if mutation.file in test["lines"]]
        if lines is not None:
            at = [n for n in at if not lines.isdisjoint(known[n]["lines"][mutation.file])]
        if at:
            break

    def near(name: str) -> int:
        file = known[name]["file"]
        own_name = Path(file).stem == f"test_{Path(mutation.file).stem}"
        return 0 if own_name else 1 if room(file) == room(mutation.file) else 2

    def price(name: str) -> tuple[float, str]:
        return (0, 0.2, 1)[near(name)] * known[name]["seconds"], name

    chosen, total = [], 0.0
    for name in sorted(at, key=price):
        if total + known[name]["seconds"] <= seconds:
            chosen.append(name)
            total += known[name]["seconds"]
    whole: dict[str, float] = {}  # tests of one file stay together, as they may share fixtures
    for name in chosen:
        whole[known[name]["file"]] = whole.get(known[name]["file"], 0.0) + known[name]["seconds"]

    def rank(name: str) -> tuple[int, float, str, float]:
        file, own = known[name]["file"], known[name]["seconds"]
        return near(name), whole[file], file, own

    return sorted(chosen, key=rank), total


# One bug at a time


@dataclass
class Outcome:
    mutation: Mutation
    room: str
    fate: str  # caught, alive, equivalent, unreached
    by: str = ""  # the test that caught it

    def record(self) -> dict[str, Any]:
        lines = (ROOT / self.mutation.file).read_bytes()
        before, after = (text.decode().splitlines() for text in (lines, self.mutation.apply(lines)))
        at = self.mutation.line - 1
        shown = {"before": before[at].strip(), "after": after[at].strip()}
        return {"name": self.mutation.name, "room": self.room, "fate": self.fate, "by": self.by, **shown}


def room(file: str) -> str:
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else Path(file).stem.removeprefix("test_")


def sample(rooms: Sequence[str], count: int, seed: int) -> dict[str, list[Mutation]]:
    """`count` mutations a room: a line at random, one of its operators at random, one of those mutations at random."""
    chosen = {}
    for name in rooms:
        files = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("horosphere/**/*.py"))]
        lines: dict[tuple[str, int], dict[str, list[Mutation]]] = {}
        for file in (file for file in files if room(file) == name):
            for one in mutations(ROOT, file):
                lines.setdefault((file, one.line), {}).setdefault(one.operator, []).append(one)
        if not lines:
            raise SystemExit(f"mutation.py: there is no room {name!r} with code to change")
        chance, order = random.Random(f"{seed} {name}"), sorted(lines)
        chance.shuffle(order)
        picks = (chance.choice(lines[line][chance.choice(sorted(lines[line]))]) for line in order)
        whole = (pick for pick in picks if usable(ROOT, pick))
        chosen[name] = [pick for pick, _ in zip(whole, range(count), strict=False)]
    return chosen


class Tries:
    """Bugs tried in copies of the tree, some at once."""

    def __init__(self, known: dict[str, dict[str, Any]], folder: Path, jobs: int, seconds: float):
        self.known, self.seconds = known, seconds
        self.equivalent = read_equivalent()
        self.trees: queue.Queue[Path] = queue.Queue()
        for i in range(jobs):
            self.trees.put(copy_tree(folder / f"tree{i}"))
        self.running: set[subprocess.Popen[str]] = set()

    def fate(self, name: str, mutation: Mutation) -> Outcome:
        if mutation.name in self.equivalent:
            return Outcome(mutation, name, "equivalent", self.equivalent[mutation.name])
        tests, seconds = tests_for(mutation, self.known, self.seconds)
        if not tests:
            return Outcome(mutation, name, "unreached")
        tree = self.trees.get()
        changed = tree / mutation.file
        try:
            changed.write_bytes(mutation.apply((ROOT / mutation.file).read_bytes()))
            _forget_compiled(changed)
            said = self.ask(tree, tests, limit=60 + 4 * seconds)
        finally:
            shutil.copy2(ROOT / mutation.file, changed)
            _forget_compiled(changed)
            self.trees.put(tree)
        return Outcome(mutation, name, "caught" if said else "alive", said)

    def ask(self, tree: Path, tests: list[str], limit: float) -> str:
        """The test that fails, or what else went wrong; nothing where all pass."""
        chosen = tree / "chosen.json"
        chosen.write_text(json.dumps(tests))
        files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        command = [*PYTEST, "-x", "-rfE", "-p", "mutation_choice", *files]
        env = environment(tree, MUTATION_CHOICE=str(chosen))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, cwd=tree, env=env, text=True, start_new_session=True, **pipes)  # type: ignore
        self.running.add(process)
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.stop(process)
            return "a hang"
        finally:
            self.running.discard(process)
        if process.returncode == 0:
            return ""
        if process.returncode == 5:
            raise RuntimeError(f"no test was run of {tests[:3]}…\n{out[-2000:]}")
        named = [line for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return named[0].split(" - ")[0] if named else f"exit status {process.returncode}"

    @staticmethod
    def stop(process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _forget_compiled(source: Path) -> None:
    """Python trusts compiled files of the same second and length, and so may numba."""
    for old in (source.parent / "__pycache__").glob(f"{source.stem}.*"):
        old.unlink()


def read_equivalent() -> dict[str, str]:
    """{name of a mutation: why it changes nothing}. A name on a line of its own, the reason indented below it."""
    found: dict[str, str] = {}
    name = ""
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.is_file() else []:
        if line.startswith("    ") and name:
            found[name] = f"{found[name]} {line.strip()}".strip()
        elif line.strip() and not line.startswith("#"):
            name = line.strip()
            found[name] = ""
    return found


# Tables


def table(records: Iterable[dict[str, Any]]) -> str:
    rows = [f"{'room':<16}{'tried':>7}{'caught':>8}{'alive':>7}{'equivalent':>12}{'alive of the rest':>19}"]
    rooms: dict[str, list[str]] = {}
    for record in records:
        rooms.setdefault(record["room"], []).append(record["fate"])
    rooms["all"] = [fate for fates in list(rooms.values()) for fate in fates]
    for name, fates in rooms.items():
        equivalent = fates.count("equivalent")
        caught, tried = fates.count("caught"), len(fates)
        alive = tried - caught - equivalent
        share = alive / max(1, tried - equivalent)
        rows.append(f"{name:<16}{tried:>7}{caught:>8}{alive:>7}{equivalent:>12}{share:>18.1%} ")
    return "\n".join(rows)


def survivors(records: Iterable[dict[str, Any]]) -> str:
    alive = [record for record in records if record["fate"] in {"alive", "unreached"}]
    words = {"alive": "", "unreached": "   (no test runs it)"}
    texts = (f"{r['name']}{words[r['fate']]}\n    - {r['before']}\n    + {r['after']}" for r in alive)
    return "\n".join(texts) or "nothing lives"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=["geometry", "nn", "optim", "models", "evaluate", "train"])
    parser.add_argument("--count", type=int, default=25, help="mutations a room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="+", default=["tests"], help="files and folders that may be asked")
    parser.add_argument("--seconds", type=float, default=60.0, help="tests asked about one mutation, in seconds")
    parser.add_argument("--out", type=Path, default=KEPT / "mutations.json")
    parser.add_argument("--resume", action="store_true", help="keep what --out holds, try the rest")
    parser.add_argument("--again", action="store_true", help="with --resume: try survivors again")
    asked = parser.parse_args()
    known = coverage_map(asked.jobs, asked.tests)
    todo = {one.name: (name, one) for name, all in sample(asked.rooms, asked.count, asked.seed).items() for one in all}
    old = json.loads(asked.out.read_text()) if asked.resume and asked.out.is_file() else []
    settled = {"caught"} if asked.again else {"caught", "alive"}
    records = {r["name"]: r for r in old if r["name"] not in todo or r["fate"] in settled}
    todo = {name: pair for name, pair in todo.items() if name not in records}
    asked.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(record: dict[str, Any]) -> None:
        records[record["name"]] = record
        asked.out.write_text(json.dumps(list(records.values()), indent=1, ensure_ascii=False))

    try_all(todo, known, asked, keep)
    print(f"\n{survivors(records.values())}\n\n{table(records.values())}")


def try_all(
    todo: dict[str, tuple[str, Mutation]], known: dict[str, Any], asked: argparse.Namespace, keep: Callable[..., object]
) -> None:
    begun = time.time()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        tries = Tries(known, Path(folder).resolve(), asked.jobs, asked.seconds)
        futures = [pool.submit(tries.fate, *pair) for pair in todo.values()]
        try:
            for i, future in enumerate(as_completed(futures), start=1):
                record = future.result().record()
                keep(record)
                print(
                    f"{time.time() - begun:6.0f} s {i}/{len(futures)} {record['fate']:<10} {record['name']}", flush=True
                )
        except KeyboardInterrupt:
            print("stopped; --resume goes on", flush=True)
        finally:
            for future in futures:
                future.cancel()
            for process in list(tries.running):
                Tries.stop(process)


if __name__ == "__main__":
    main()
