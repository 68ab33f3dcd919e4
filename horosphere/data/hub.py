"""Datasets by name on Hugging Face: hf:NAME, hf:NAME:CONFIG, hf:NAME:CONFIG:SPLIT."""

from importlib import import_module

from horosphere.errors import UserError


def dataset_name(source: str) -> tuple[str, str, str]:
    """Name, configuration and split, the last two empty where they are left out."""
    try:
        import_module("datasets")
    except ImportError:
        raise UserError(f"{source} needs the package datasets: pip install 'horosphere[language]'") from None
    name, config, split, *more = [*source.split(":")[1:], "", ""]
    if not name or any(more):
        raise UserError(f"{source}: no name of a dataset. Write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT.")
    return name, config, split
