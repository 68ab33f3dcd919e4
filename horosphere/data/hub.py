"""Datasets by name on Hugging Face: hf:NAME, hf:NAME:CONFIG, hf:NAME:CONFIG:SPLIT."""

from pathlib import Path
from typing import Any

from horosphere.errors import UserError
from horosphere.extras import require


def dataset_name(source: str) -> tuple[str, str, str]:
    """Name, configuration and split of a source; the last two are empty where it leaves them out.

    >>> dataset_name("hf:uoft-cs/cifar100:cifar100")
    ('uoft-cs/cifar100', 'cifar100', '')
    """
    require("datasets")
    name, config, split, *more = [*source.split(":")[1:], "", ""]
    if not name or any(more):
        raise UserError(f"{source}: no name of a dataset. Write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT.")
    return name, config, split


def saved_rows(name: str) -> Any:
    """The rows of one split that `save_to_disk` wrote into a folder; None where it is no such folder.

    >>> saved_rows("uoft-cs/cifar100") is None
    True
    """
    if not Path(name, "state.json").is_file():
        return None
    from datasets import load_from_disk

    return load_from_disk(name)
