"""Datasets by name on Hugging Face: hf:NAME, hf:NAME:CONFIG, hf:NAME:CONFIG:SPLIT."""

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
