"""Folders of models as Hugging Face's library writes them: ours, and what every such folder must be to be opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from horosphere.errors import UserError, one_line
from horosphere.files import PARTIAL, writing
from horosphere.foreign import (
    INDEX,
    MODEL,
    Unreadable,
    open_tensors,
    read_index,
    read_json,
    require_regular,
    shown,
)
from horosphere.models.writing import hushed
from horosphere.settings import convert, settings_of

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

CONFIG = "config.json"  # written last: where it is, all files are
ADAPTER = "adapter_config.json"
GENERATION = "generation_config.json"
# keys of config.json that transformers obeys without a word: code, kernels and weights from elsewhere
OBEYED = {
    *("auto_map", "quantization_config", "transformers_weights", "fusion_config"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
    *("experts_implementation", "_experts_implementation", "_experts_implementation_internal"),
}
HARMLESS = (None, "eager", "sdpa")  # values of these keys that say nothing new
SPARE = 10**7  # weights that a model may have beyond twice those in its files: heads that are not used, tied ones
NOTES = {"_from_model_config", "transformers_version"}  # of generation_config.json, that say nothing on generation

Fetch = Callable[[str], Path | None]  # a file of a model by its name; None where the model has no such file


# -- any model --------------------------------------------------------------------------------------------------------


def files_in(folder: Path) -> Fetch:
    """The files of a folder."""
    require_regular(folder)
    return lambda name: folder / name if (folder / name).is_file() else None


def files_of_hub(name: str) -> Fetch:
    """The files of a model of the hub, fetched where they are asked for."""
    from transformers.utils import cached_file

    asked: dict[str, Any] = {"_raise_exceptions_for_missing_entries": False}

    def fetch(file: str) -> Path | None:
        found = cached_file(name, file, **asked)
        return None if found is None else Path(found)

    return fetch


def require_plain(
    fetch: Fetch, kind: str | None, build: Callable[[dict[str, Any]], nn.Module], hub: bool = False
) -> dict[str, Any]:
    """What config.json says, of a model that transformers may open: nothing in its files is obeyed without a word.

    kind: its model_type, None for any. build: makes the model, without weights, as the configuration has it.
    """
    import torch

    if fetch(ADAPTER) is not None:
        raise Unreadable(f"it has {ADAPTER}, which would change its weights; merge the adapter, or remove the file")
    config = _read(fetch, CONFIG)
    if not isinstance(config.get("model_type"), str) or kind not in (None, config["model_type"]):
        raise Unreadable(f"{CONFIG} says model_type {shown(config.get('model_type'))}")
    shapes, ours = _shapes(fetch), auto_map(config["model_type"])
    for key, value in _settings(config):
        if key in OBEYED and value not in (*HARMLESS, ours):  # our own code is not run from there
            raise Unreadable(f"{CONFIG} sets {key}, which is not read here; remove it")
        if shapes and "layers" in key and isinstance(value, int) and value > len(shapes):
            raise Unreadable(f"{CONFIG} sets {key} to {value:,}, and there are {len(shapes)} tensors")
    if hub and fetch(MODEL) is None and fetch(INDEX) is None:
        return config  # transformers finds safetensors of the hub under further names
    if not shapes:
        raise Unreadable(f"there are no tensors in {MODEL} or in files of {INDEX}")
    with hushed(), torch.device("meta"):
        claimed = sum(p.numel() for p in build(config).parameters())
    if claimed > 2 * (held := sum(map(prod, shapes.values()))) + SPARE:
        raise Unreadable(f"{CONFIG} describes {claimed:,} weights, and {held:,} are there")
    return config


def _settings(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(key, value) of a configuration and of those within it."""
    for key, value in config.items():
        yield key, value
        if isinstance(value, dict):
            yield from _settings(value)


def _shapes(fetch: Fetch) -> dict[str, list[int]]:
    """Of all tensors, from the headers of their files; none where there are no files."""
    if (single := fetch(MODEL)) is not None:
        files = [single]
    elif (index := fetch(INDEX)) is not None:
        try:
            names = sorted(set(read_index(index).values()))
        except Unreadable as error:
            raise Unreadable(f"{INDEX}: {error}") from error
        found = {name: fetch(name) for name in names}
        if missing := [name for name, file in found.items() if file is None]:
            raise Unreadable(f"there is no {missing[0]}, which {INDEX} names")
        files = [file for file in found.values() if file is not None]
    else:
        files = []
    shapes: dict[str, list[int]] = {}
    for file in files:
        with open_tensors(file) as tensors:
            shapes |= {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
    return shapes


def _read(fetch: Fetch, name: str) -> dict[str, Any]:
    if (file := fetch(name)) is None:
        raise Unreadable(f"there is no {name}")
    try:
        content: dict[str, Any] = read_json(file)
    except Unreadable as error:
        raise Unreadable(f"{name}: {error}") from error
    return content


# -- our language models ----------------------------------------------------------------------------------------------

# model_type: the module, and its classes by the names of transformers' openers
LANGUAGE_MODELS = {
    "helm": (
        "horosphere.models.helm",
        {"AutoConfig": "HelmConfig", "AutoModel": "HelmModel", "AutoModelForCausalLM": "HelmForCausalLM"},
    ),
    "horosphere-recurrent": (
        "horosphere.models.recurrent",
        {"AutoConfig": "RecurrentConfig", "AutoModelForCausalLM": "RecurrentForCausalLM"},
    ),
    "horosphere-window": (
        "horosphere.models.recurrent",
        {"AutoConfig": "WindowConfig", "AutoModelForCausalLM": "WindowForCausalLM"},
    ),
}
CODE = "modeling_horosphere.py"  # beside the weights, for those who trust it


def auto_map(kind: str) -> dict[str, str] | None:
    """What config.json of a model of ours says of its code; None for models of others.

    >>> auto_map("helm")["AutoModelForCausalLM"]
    'modeling_horosphere.HelmForCausalLM'
    """
    _, classes = LANGUAGE_MODELS.get(kind, (None, None))
    return None if classes is None else {opener: f"{Path(CODE).stem}.{name}" for opener, name in classes.items()}


def opening_code(kind: str) -> str:
    """The file that transformers runs for `trust_remote_code=True`. It imports; there is no model in it.

    >>> "from horosphere.models.helm import HelmConfig, HelmForCausalLM, HelmModel" in opening_code("helm")
    True
    """
    module, classes = LANGUAGE_MODELS[kind]
    needs = "this model needs the package horosphere: pip install 'horosphere[language]'"
    return f'''"""Opens this model in transformers, with trust_remote_code=True. Its code is the package horosphere."""

try:
    from {module} import {", ".join(sorted(classes.values()))}  # noqa: F401
except ImportError as error:
    raise ImportError("{needs}") from error
'''


def read_language_model(folder: Path) -> Any:
    """The model in a folder, safetensors only; whatever is wrong with it in one line."""
    from transformers import GenerationConfig

    try:
        files = files_in(folder)
        kind = _read(files, CONFIG).get("model_type")
        if not isinstance(kind, str) or kind not in LANGUAGE_MODELS:
            how = f"this reads {', '.join(LANGUAGE_MODELS)} only, load it with transformers"
            raise UserError(f"{folder}: a model of type {one_line(kind)}; {how}")
        module, classes = LANGUAGE_MODELS[kind]
        openers = ("AutoConfig", "AutoModelForCausalLM")
        config_class, model_class = (getattr(import_module(module), classes[opener]) for opener in openers)
        made = _typed(config_class, require_plain(files, kind, lambda c: model_class(_typed(config_class, c))))
        _require_no_other_generation(files, made)
        with hushed():
            model, problems = model_class.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except UserError:
        raise
    except Exception as error:  # what transformers and safetensors raise for a broken file is anyone's guess
        raise _damaged(folder, error) from error
    for what, names in problems.items():
        if names:
            raise _damaged(folder, f"{what.replace('_', ' ')}: {min(map(str, names))}")
    model.generation_config = GenerationConfig.from_model_config(made)
    return model


def _typed(made_by: type[PretrainedConfig], config: dict[str, Any]) -> PretrainedConfig:
    """A configuration with every setting of its type: transformers takes what comes."""
    from transformers import GenerationConfig

    known = {name: kind for name, (kind, _) in settings_of(made_by).items()}
    known["max_position_embeddings"] = known["vocab_size"]
    try:
        for name in known.keys() & config.keys():
            typed = convert(config[name], known[name], name)
            if isinstance(config[name], str) and not isinstance(typed, str):
                raise Unreadable(f"{name} is the text {shown(config[name])}")
        made = made_by.from_dict(config)
    except UserError as error:
        raise Unreadable(one_line(error)) from error
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        ids = config.get(name)
        for number in ids if isinstance(ids, list) else [] if ids is None else [ids]:
            size = config.get("vocab_size", made_by.vocab_size)
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < size:
                raise Unreadable(f"{name} is {shown(ids)}, and there are {size:,} tokens")
    if odd := sorted(GenerationConfig().to_dict().keys() & config.keys() - vars(made_by()).keys() - NOTES):
        raise Unreadable(f"{CONFIG} sets {odd[0]}, which belongs to generation; remove it")
    return made


def _require_no_other_generation(files: Fetch, made: PretrainedConfig) -> None:
    """generation_config.json says what config.json says, as `save_pretrained` writes it, or nothing."""
    from transformers import GenerationConfig

    if files(GENERATION) is None:
        return
    plain = GenerationConfig.from_model_config(made).to_dict()
    for key, value in _read(files, GENERATION).items():
        off = value is None or value is False
        same = key in plain and value == plain[key] and type(value) is type(plain[key])
        if key not in NOTES and not same and not (off and key in plain):
            how = "remove it: options of generation are given to `generate`, tokens stand in config.json"
            raise Unreadable(f"{GENERATION} sets {one_line(key)} to {shown(value)}; {how}")


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
