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


def saved_splits(name: str) -> dict[str, Any] | None:
    """{split: rows} that `save_to_disk` wrote into a folder; None where it is no such folder.

    Rows that were saved alone are called "train", as the library calls them elsewhere, unless they know their split.

    >>> saved_splits("uoft-cs/cifar100") is None
    True
    """
    alone, together = (Path(name, file).is_file() for file in ("state.json", "dataset_dict.json"))
    if not alone and not together:
        return None
    from datasets import load_from_disk

    saved = load_from_disk(name)
    return dict(saved) if together else {str(saved.split or "train"): saved}


def require_split(source: str, split: str, splits: dict[str, Any]) -> str:
    """The split that was asked for; by default "train", or the only one.

    >>> require_split("hf:a", "", {"test": [1]})
    'test'
    """
    split = split or ("train" if len(splits) > 1 else next(iter(splits), "train"))
    if split not in splits:
        raise UserError(f"{source}: no split {split}; there are {', '.join(splits)}")
    return split
