"""What tests of several rooms share: their own cache, tasks that exist in tests only, jobs without their seconds."""

import signal

import pytest

from horosphere import catalogue
from horosphere.errors import NotFinite

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # what a script starts in the background is born deaf to Ctrl-C, and so are its children
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Tokens that a test makes are not found in, nor left in, the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROSPHERE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _tasks_of_tests():
    """The tasks of tests/train: runs of them can be opened."""
    named = [("toy", "tests.train.toy_task:ToyTask"), ("flat", "tests.train.test_engine:Flat")]
    entries = tuple(catalogue.Task(name, build, "for tests", "this") for name, build in named)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "TASKS", (*catalogue.TASKS, *entries))
        yield


@pytest.fixture
def in_this_process(monkeypatch):
    """Trainings of studies without the seconds it takes to start Python; those that were begun are resumed."""
    from horosphere.study import jobs as studied
    from horosphere.superposition import widths
    from horosphere.train.recipe import Recipe
    from tests.tasks.tiny import run_tiny

    begun = []

    def run(jobs, executor, update):
        diverged = {}
        for job in jobs:
            begun.append(job.folder.name)
            recipe, *settings = job.words[1 : job.words.index("--device")]
            anew = "--overwrite" in job.command
            resume = not anew and (job.folder / "run.json").is_file()
            try:
                run_tiny(Recipe.read(recipe, settings), job.folder, resume=resume, overwrite=anew)
            except NotFinite as error:
                diverged[job.name] = str(error)
            update(job.steps, job.name)
        return diverged

    monkeypatch.setattr(studied, "run_all", run)
    monkeypatch.setattr(widths, "run_all", run)
    return begun
