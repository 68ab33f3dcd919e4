"""HELM in folders as Hugging Face's library writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from horosphere.errors import UserError, one_line
from horosphere.files import PARTIAL, writing
from horosphere.models.writing import hushed

if TYPE_CHECKING:
    from horosphere.models.helm import HelmForCausalLM

CONFIG = "config.json"  # written last: where it is, all files are


def read_helm(folder: Path) -> HelmForCausalLM:
    """The model in a folder, safetensors only; whatever is wrong with it in one line."""
    from horosphere.models.helm import HelmConfig, HelmForCausalLM

    try:
        kind = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("model_type")
        if kind != HelmConfig.model_type:
            how = f"this reads {HelmConfig.model_type} only, load it with transformers"
            raise UserError(f"{folder}: a model of type {kind}; {how}")
        with hushed():
            model, problems = HelmForCausalLM.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except UserError:
        raise
    except Exception as error:  # what transformers and safetensors raise for a broken file is anyone's guess
        raise _damaged(folder, error) from error
    for what, names in problems.items():
        if names:
            raise _damaged(folder, f"{what.replace('_', ' ')}: {min(map(str, names))}")
    assert isinstance(model, HelmForCausalLM)
    return model


def put_files(folder: Path, like: Path, *savers: Callable[[str], object]) -> None:
    """What `save_pretrained` and its kind write, each file whole, readable for whom the file `like` is; CONFIG last."""
    with writing(folder), TemporaryDirectory(PARTIAL, ".aside.", folder, ignore_cleanup_errors=True) as aside, hushed():
        for save in savers:
            _saved(save, aside, folder)
        for file in sorted(Path(aside).iterdir(), key=lambda file: file.name == CONFIG):
            file.chmod(like.stat().st_mode)  # safetensors' own are for their owner alone
            file.replace(folder / file.name)


def _saved(save: Callable[[str], object], aside: str, folder: Path) -> None:
    """Libraries have errors of their own for a disk that refuses."""
    try:
        save(aside)
    except OSError:
        raise
    except Exception as error:
        raise UserError(f"{folder}: the model cannot be saved ({one_line(error)}); make room, then --resume") from error


def _damaged(folder: Path, reason: object) -> UserError:
    how = f"; in the folder of a run, delete its {CONFIG} to use the last checkpoint"
    return UserError(f"{folder}: a damaged or foreign model ({one_line(reason)}){how}")
