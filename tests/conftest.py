"""What tests of several rooms share: a cache of their own, tasks that exist in tests only, the command line."""

import pytest

from horosphere import catalogue


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
