"""Which lines of the package each test runs, for `mutation.py`: a plugin of pytest (-p mutation_trace).

Lines that run while a fixture is made belong to every test that asks for the fixture. Python processes that a test
starts are traced too: `sitecustomize.py` in the traced tree calls `trace_child`. Lines that run when a file is imported
belong to nobody; `mutation.py` then asks who runs the function around them, or anything of that file.
Each process writes one JSON file into $MUTATION_TRACE.
"""

import atexit
import inspect
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

CONTEXT = "MUTATION_CONTEXT"  # the test or fixture that runs now, for processes it starts
ROOT = f"{Path.cwd()}/"  # pytest runs in the traced tree

Lines = dict[str, set[int]]
lines: dict[str, Lines] = defaultdict(lambda: defaultdict(set))  # test or fixture -> file -> lines
current: list[str] = []  # a fixture may be made within another's making
tests: dict[str, dict[str, Any]] = {}
files: dict[CodeType, str | None] = {}  # the file of the package a code object comes from; none: somebody else's


def on_call(frame: FrameType, event: str, arg: object) -> Any:
    code = frame.f_code
    if code not in files:
        name = code.co_filename.removeprefix(ROOT)
        in_function = code.co_flags & inspect.CO_OPTIMIZED  # not the body of a module or a class
        files[code] = name if in_function and name.startswith("horosphere/") else None
    file = files[code]
    if file is None or not current:
        return None
    seen = lines[current[-1]][file]
    seen.add(frame.f_lineno)

    def on_line(frame: FrameType, event: str, arg: object) -> Any:
        seen.add(frame.f_lineno)
        return on_line

    return on_line


def start() -> None:
    threading.settrace(on_call)
    sys.settrace(on_call)


def write() -> None:
    found = {name: {file: sorted(at) for file, at in of.items()} for name, of in lines.items()}
    target = Path(os.environ["MUTATION_TRACE"]) / f"{os.getpid()}-{time.time_ns()}.json"
    target.write_text(json.dumps({"tests": tests, "lines": found}))


def trace_child() -> None:
    """In a process that a traced test started."""
    if os.environ.get(CONTEXT):
        global ROOT
        ROOT = f"{os.environ['MUTATION_ROOT']}/"
        current.append(os.environ[CONTEXT])
        atexit.register(write)
        start()


def within(name: str) -> Generator[None, object, object]:
    current.append(name)
    os.environ[CONTEXT] = name
    start()  # again and again: an error within the tracer, such as a stack too deep, ends the tracing
    try:
        return (yield)
    finally:
        current.pop()
        os.environ[CONTEXT] = current[-1] if current else ""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, object, object]:
    return (yield from within(f"{fixturedef.baseid}::{fixturedef.argname}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Generator[None, object, object]:
    begun = time.perf_counter()
    answer = yield from within(item.nodeid)
    made = [f"{one.baseid}::{name}" for name, all in item._fixtureinfo.name2fixturedefs.items() for one in all]
    tests[item.nodeid] = {"seconds": time.perf_counter() - begun, "fixtures": made, **tests.get(item.nodeid, {})}
    return answer


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed or report.skipped:
        tests.setdefault(report.nodeid, {})["outcome"] = report.outcome


def pytest_sessionfinish() -> None:
    sys.settrace(None)
    write()
