"""Checkpoints: folders of safetensors and JSON that are there whole or not at all, for any number of processes to read.

    checkpoints/step-00001000/   model-00001-of-00001.safetensors   optimizer-00001-of-00001.safetensors   state.json

Tensors are stored whole, whatever the number of processes that share them. Only the main process touches the disk.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from horosphere.errors import UserError, one_line
from horosphere.files import PARTIAL, forget_partial, sync_folder, write_synced, writing
from horosphere.foreign import Unreadable, open_tensors, read_json
from horosphere.runs import checkpoints
from horosphere.train.distributed import World, reshard, spread, whole

FILE_BYTES = 2 * 10**9  # a file holds no more, unless a single tensor does; also the most memory that writing takes
STATE = "state.json"
FILE = re.compile(r"(model|optimizer)-\d{5}-of-\d{5}\.safetensors")  # nothing that leads elsewhere


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, world: World, notes: dict[str, Any]) -> Path:
    """Write the checkpoint of notes["step"] below `folder`. Every process must call it; `notes` go into state.json."""
    target, aside = folder / f"step-{notes['step']:08d}", folder / f".step-{notes['step']:08d}{PARTIAL}"
    reshard(model)
    try:
        world.from_main(lambda: _begin(aside))
        files: dict[str, Any] = {}
        for kind, tensors in (("model", model_tensors(model)), ("optimizer", optimizer_tensors(model, optimizer))):
            parts = list(_parts(tensors))
            for number, part in enumerate(parts, 1):
                name = f"{kind}-{number:05d}-of-{len(parts):05d}.safetensors"
                gathered = {}
                for key in part:
                    full = whole(tensors[key].detach())
                    if world.is_main:  # a copy: safetensors refuses tensors that share memory
                        gathered[key] = full.to("cpu", copy=True).contiguous()
                files[name] = world.from_main(partial(_write_tensors, aside / name, gathered))
        world.from_main(lambda: _finish(aside, target, {**notes, "processes": world.size, "files": files}))
    except BaseException:
        if world.is_main:
            shutil.rmtree(aside, ignore_errors=True)
        raise
    return target


def forget(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest."""
    for old in checkpoints(folder)[:-keep]:
        # first out of sight: half removed, it must not pass for a checkpoint
        with writing(old):
            going = old.rename(old.with_name(f".{old.name}{PARTIAL}"))
        shutil.rmtree(going)


def read_state(path: Path) -> dict[str, Any]:
    """state.json of a checkpoint, after a look at every byte of its files: what is damaged is named."""
    try:
        state: dict[str, Any] = read_json(path / STATE, infinite=True)
        _require_sound(state)
        files = {path / name: (about["bytes"], about["sha256"]) for name, about in state["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(path / STATE, error) from error
    for file, (size, digest) in files.items():
        if not file.is_file():
            raise _damaged(file, "it is missing")
        if file.stat().st_size != size:
            raise _damaged(file, f"{file.stat().st_size:,} bytes, not {size!r}")
        with file.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                raise _damaged(file, "its content has changed since it was written")
    return state


def restore(
    path: Path,
    model: nn.Module,
    world: World,
    optimizer: torch.optim.Optimizer | None = None,
    recipe: str | None = None,
) -> dict[str, Any]:
    """Put a checkpoint into a model (and its optimizer), in place; returns state.json.

    All of it is checked before anything changes. `recipe`: the fingerprint that state.json must have, to resume a run.
    """
    reshard(model)
    into = model_tensors(model)
    owners = dict(model.named_parameters())
    state, layout = world.from_main(lambda: _checked(path, into, owners if optimizer is not None else None, recipe))
    handles = {file: open_tensors(path / file) for file, _, _ in layout.values()} if world.is_main else {}

    def value(name: str, like: Tensor) -> Tensor:
        file, dtype, shape = layout[name]
        stored = handles[file].get_tensor(name.partition(":")[2]) if handles else None
        return spread(stored, shape, getattr(torch, dtype), like, world)

    with torch.no_grad():
        for name, t in into.items():
            t.copy_(value(f"model:{name}", t))
        if optimizer is not None:
            numbers = {id(p): i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
            moments: dict[int, dict[str, Tensor]] = {}
            for name in layout:
                kind, _, rest = name.partition(":")
                if kind == "optimizer":
                    slot, _, owner = rest.partition(".")
                    moments.setdefault(numbers[id(owners[owner])], {})[slot] = value(name, owners[owner])
            optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    return dict(state)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers that are part of the model's state, by name; what is tied comes once."""
    kept = model.state_dict().keys()
    return {name: t for name, t in (*model.named_parameters(), *model.named_buffers()) if name in kept}


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimizer keeps, as "slot.parameter": exp_avg.layers.0.weight"""
    kept = {}
    for name, p in model.named_parameters():
        for slot, value in optimizer.state.get(p, {}).items():
            if value is not None and not isinstance(value, Tensor):
                what = f"{type(optimizer).__name__} keeps {slot} of {name} as {type(value).__name__}"
                raise TypeError(f"{what}; checkpoints hold tensors only")
            if value is not None:
                kept[f"{slot}.{name}"] = value
    return kept


# -- writing ----------------------------------------------------------------------------------------------------------


def _parts(tensors: dict[str, Tensor]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for name, t in tensors.items():
        if part and size + t.numel() * t.element_size() > FILE_BYTES:
            yield part
            part, size = [], 0
        part.append(name)
        size += t.numel() * t.element_size()
    if part:
        yield part


def _begin(aside: Path) -> None:
    """Room for a new checkpoint; what killed runs have left goes."""
    forget_partial(aside.parent)
    with writing(aside):
        aside.mkdir(parents=True)


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    from safetensors.torch import save as to_bytes

    content = to_bytes(tensors)
    with writing(path):
        write_synced(path, content)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _finish(aside: Path, target: Path, state: dict[str, Any]) -> None:
    with writing(target):
        write_synced(aside / STATE, json.dumps(state, indent=2).encode())
        sync_folder(aside)
        aside.rename(target)
        sync_folder(target.parent)


# -- reading ----------------------------------------------------------------------------------------------------------


def _checked(
    path: Path, into: dict[str, Tensor], owners: dict[str, nn.Parameter] | None, recipe: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """state.json, and {"model:NAME" or "optimizer:SLOT.NAME": [file, dtype, shape]} of a checkpoint that fits."""
    state = read_state(path)
    if recipe is not None and state.get("recipe") != recipe:
        raise _foreign(path, "made by another recipe")
    layout: dict[str, Any] = {}
    for file in state["files"]:
        kind = file.partition("-")[0]
        if kind == "optimizer" and owners is None:
            continue
        try:
            with open_tensors(path / file) as tensors:
                for name in tensors.keys():  # noqa: SIM118 (a handle, not a dict)
                    t = tensors.get_tensor(name)
                    layout[f"{kind}:{name}"] = [file, str(t.dtype).removeprefix("torch."), list(t.shape)]
        except (Unreadable, SafetensorError) as error:
            raise _damaged(path / file, error) from error
    here = {f"model:{name}": (str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in into.items()}
    there = {name: (dtype, shape) for name, (_, dtype, shape) in layout.items() if name.startswith("model:")}
    for name in (*here, *there):
        if here.get(name) != there.get(name):
            kinds = [f"{k[0]} {tuple(k[1])}" if k else "absent" for k in (there.get(name), here.get(name))]
            raise _foreign(path, f"{name.removeprefix('model:')} is {kinds[0]} there and {kinds[1]} here")
    for name, (_, _, shape) in layout.items():
        kind, _, rest = name.partition(":")
        if kind == "optimizer" and owners is not None:
            owner = owners.get(rest.partition(".")[2])
            if owner is None or (shape and shape[0] != owner.shape[0]):
                raise _foreign(path, f"its optimizer keeps {rest} {tuple(shape)}")
    return state, layout


def _require_sound(state: dict[str, Any]) -> None:
    """state.json has what a training goes on with, each of its type."""
    if strange := [name for name in state["files"] if not FILE.fullmatch(name)]:
        raise ValueError(f"{strange[0]!r} is no file of a checkpoint")
    evaluation, window = state.get("evaluation", {}), state.get("window", {"steps": 0, "sums": {}})
    counts = {"step": state["step"], "steps of the window": window["steps"]}
    numbers = {"seconds": state.get("seconds", 0.0), **evaluation, **window["sums"]}
    for name, value in (*counts.items(), *numbers.items()):
        fits = isinstance(value, int if name in counts else (int, float)) and not isinstance(value, bool)
        if not fits or (name in counts and value < 0):
            raise TypeError(f"{name} is {value!r}")


def step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _damaged(file: Path, reason: object) -> UserError:
    others = [path for path in checkpoints(file.parent.parent) if path != file.parent]
    newest = others[-1].name if others else "the beginning"
    return UserError(f"{file}: a damaged checkpoint ({one_line(reason)}); delete {file.parent} to go on from {newest}")


def _foreign(path: Path, reason: str) -> UserError:
    how = "resume with the recipe it was trained with, or start a new run"
    return UserError(f"{path}: a checkpoint of another run ({reason}); {how}")
