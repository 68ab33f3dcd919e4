"""timm's own tests of a model, tests/test_models.py, on every HCFormer.

`./run peers` gets the tests from the source archive of the installed version and runs this file.
"""

import fnmatch
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import timm

import horosphere.models.timm_models  # noqa: F401  registers
from horosphere.errors import UserError

PATTERN = "hcformer*"
OURS = timm.list_models(PATTERN)
# tests that cannot apply, and the one line that a user gets instead
REFUSED = {
    "test_model_forward_torchscript": "TorchScript cannot follow windows that are cut by the size of a picture",
    "test_model_forward_fx": "torch.fx cannot follow a check of shapes, nor windows that are cut by them",
    "test_model_backward_fx": "as test_model_forward_fx",
    "test_model_forward_fx_torchscript": "as test_model_forward_fx",
}


def _ours(
    *filters: Any, module: Any = None, list_models: Callable[..., list[str]] = timm.list_models, **options: Any
) -> list[str]:
    """What the suite would list, only ours. Where it names the files of timm's models that have an interface, ours
    have it too."""
    return fnmatch.filter(list_models(*filters, **options), PATTERN)


def _is_on_ours(test: Any) -> bool:
    marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    return any("model_name" in names and any(name in values for name in OURS) for names, values, *_ in marks)


with pytest.MonkeyPatch.context() as patch:
    patch.setattr(timm, "list_models", _ours)  # the suite asks for names while it is imported
    suite = importlib.import_module("timm_tests.test_models")

cfg_device = suite.cfg_device  # a fixture of the tests
chosen = {name: test for name, test in vars(suite).items() if name.startswith("test_") and _is_on_ours(test)}
for name, reason in REFUSED.items():
    chosen[name] = pytest.mark.xfail(raises=UserError, strict=True, reason=reason)(chosen[name])
globals().update(chosen)


def test_the_suite_runs_on_every_model() -> None:
    assert len(OURS) == 5
    assert len(chosen) > len(REFUSED) + 4  # so many more had to pass when this was written
