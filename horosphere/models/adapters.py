"""What of a pair of towers learns: its text projection, adapters on its attention, or all of it.

All ways have one face:
    adapter = adapt(towers, Adaptation("hyperclip", block=32))   # the towers are frozen but for the adapter
    adapter.trainable(), adapter.count()                         # what to train
    with adapter.disabled(): ...                                 # the towers as they were
    adapter.keep("birds"); adapter.use("birds")                  # several adaptations of the same towers
    adapter.save("folder"); load_adapter(towers, "folder")       # the adapter alone
    adapter.merge()                                              # into the weights: no cost at inference
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.files import new_folder
from horosphere.foreign import Unreadable, read_json, read_tensors
from horosphere.models.towers import Towers, has_adapter
from horosphere.settings import Size, build, check

CONFIG, WEIGHTS = "adapter.json", "adapter.safetensors"
FOREIGN = "an adapter of other towers, or of another shape; give one saved for these"
SPLIT = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"))  # projections that have weights of their own


@dataclass(frozen=True)
class Adaptation:
    """What of the towers learns."""

    # projection: the last layer of the text tower; hyperclip, lora, oft: adapters on its attention; full: all of it
    method: Literal["none", "projection", "hyperclip", "lora", "oft", "full"] = "none"
    sides: Literal["text", "image", "both"] = "text"  # of the towers
    block: Size = 32  # of hyperclip and oft: matrices are made of blocks of n x n
    rank: Size = 8  # of lora
    shared: bool = False  # of hyperclip: one block a projection for all of its channels

    def __post_init__(self) -> None:
        check(self)  # from Python too, a misspelt method is no method
        if self.method == "projection" and self.sides != "text":
            raise UserError(f"sides={self.sides}: method=projection learns on the text side; use sides=text")

    @property
    def towers(self) -> tuple[str, ...]:
        return ("text", "image") if self.sides == "both" else (self.sides,)


class Adapter:
    """What learns in a pair of towers. All else of them is frozen."""

    def __init__(self, towers: Towers, how: Adaptation):
        self.towers, self.how = towers, how
        self.on, self.merged = True, False
        self.kept: dict[str, dict[str, Tensor]] = {}

    def learned(self) -> dict[str, nn.Parameter]:
        """By names that do not depend on how the towers are held."""
        return {}

    def trainable(self) -> list[nn.Parameter]:
        return list(self.learned().values())

    def count(self) -> int:
        """How many numbers are trained."""
        return sum(p.numel() for p in self.trainable())

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """The towers as they were."""
        self._require_unmerged()
        self._switch(False)
        self.on = False
        try:
            yield
        finally:
            self._switch(True)
            self.on = True

    def _switch(self, on: bool) -> None:
        """Whether the adapter acts."""

    def merge(self) -> Towers:
        """The adapter becomes part of the weights, in place and for good. The towers have none any more."""
        if not self.on:
            raise UserError("the adapter is disabled, and would be lost; merge it outside of `with disabled()`")
        if not self.merged:
            self._merge()
        self.merged = True
        return self.towers

    def _merge(self) -> None:
        """Into the weights."""

    def _require_unmerged(self) -> None:
        if self.merged:
            raise UserError("the adapter is merged, and part of the weights for good; do this before `merge`")

    # -- several of them --------------------------------------------------------------------------------------------

    def keep(self, name: str) -> None:
        """What was learned so far, under a name."""
        self.kept[name] = {key: p.detach().clone() for key, p in self.learned().items()}

    def use(self, name: str) -> None:
        self._require_unmerged()
        if name not in self.kept:
            raise UserError(f"no adapter is kept as {name}; there are {', '.join(self.kept) or 'none'}")
        self._put(self.kept[name])

    @torch.no_grad()
    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, p in self.learned().items():
            p.copy_(tensors[name])

    # -- files ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """The adapter alone."""
        from safetensors.torch import save_file

        self._require_unmerged()
        with new_folder(folder, overwrite, mark=CONFIG) as new:
            save_file({name: p.detach().contiguous() for name, p in self.learned().items()}, new / WEIGHTS)
            (new / CONFIG).write_text(json.dumps(asdict(self.how), indent=2) + "\n")

    def load(self, folder: str | Path) -> Adapter:
        given = _weights(folder)
        own = {name: tuple(p.shape) for name, p in self.learned().items()}
        if {name: tuple(t.shape) for name, t in given.items()} != own:
            raise UserError(f"{folder}: {FOREIGN}")
        if not all(t.isfinite().all() for t in given.values()):
            raise UserError(f"{folder}: the adapter has weights that are not finite; train it again")
        self._put(given)
        return self


def adapt(towers: Towers, how: Adaptation) -> Adapter:
    """Freeze the towers, and let this much of them learn."""
    if how.method == "hyperclip":
        from horosphere.models.hyperclip import HyperClip

        return HyperClip(towers, how)
    if how.method in ("lora", "oft"):
        return PeftAdapter(towers, how)
    if how.method == "none":
        towers.requires_grad_(False)
        return Adapter(towers, how)
    return OwnWeights(towers, how)


def load_adapter(towers: Towers, folder: str | Path) -> Adapter:
    """An adapter that was saved, on towers of the same kind."""
    try:
        how = build(Adaptation, read_json(Path(folder) / CONFIG), CONFIG)
    except (Unreadable, UserError) as error:
        raise UserError(f"{folder}: no adapter ({one_line(error)}); check the path") from error
    if how.method == "lora" and not any(how.rank in t.shape for t in _weights(folder).values()):
        raise UserError(f"{folder}: {FOREIGN}")  # before matrices of that rank are made
    adapter = adapt(towers, how)
    try:
        return adapter.load(folder)
    except UserError:
        adapter.merge()  # it is nothing yet: the towers are as they were
        raise


def _weights(folder: str | Path) -> dict[str, Tensor]:
    try:
        return read_tensors(Path(folder) / WEIGHTS)
    except Unreadable as error:
        raise UserError(f"{folder}: no adapter ({error}); check the path") from error


# -- the towers' own weights ------------------------------------------------------------------------------------------


class OwnWeights(Adapter):
    """The projection of the text tower, or all of a tower, learns itself."""

    def __init__(self, towers: Towers, how: Adaptation):
        super().__init__(towers, how)
        chosen = {id(p) for p in (towers.projections() if how.method == "projection" else self._whole())}
        towers.requires_grad_(False)
        for p in towers.parameters():
            p.requires_grad_(id(p) in chosen)
        self.names = [name for name, p in towers.named_parameters() if id(p) in chosen]
        self.before = {name: p.detach().clone() for name, p in self.learned().items()}
        self.after: dict[str, Tensor] = {}

    def _whole(self) -> Iterator[nn.Parameter]:
        for side in self.how.towers:
            yield from self.towers.parameters_of(side)

    def learned(self) -> dict[str, nn.Parameter]:
        return {name: self.towers.get_parameter(name) for name in self.names}

    def _switch(self, on: bool) -> None:
        if not on:
            self.after = {name: p.detach().clone() for name, p in self.learned().items()}
        self._put(self.after if on else {name: t.to(self.after[name].device) for name, t in self.before.items()})


# -- peft's adapters --------------------------------------------------------------------------------------------------


class PeftAdapter(Adapter):
    """LoRA and OFT of peft, on queries, keys and values; on torch's MultiheadAttention LoRA adapts its output too."""

    def __init__(self, towers: Towers, how: Adaptation):
        super().__init__(towers, how)
        require("peft")
        from peft import LoraConfig, OFTConfig, inject_adapter_in_model

        towers.requires_grad_(False)
        for side in how.towers:
            tower = tower_of(towers, side)
            found = attention_of(tower, side)
            if how.method == "oft" and any(isinstance(module, nn.MultiheadAttention) for _, module, _, _ in found):
                raise UserError("peft's OFT cannot adapt torch's MultiheadAttention; use method=hyperclip or lora")
            paths = [path for path, _, _, _ in found]
            if how.method == "lora":
                # two to one, as is usual
                config: Any = LoraConfig(r=how.rank, lora_alpha=2 * how.rank, target_modules=paths)
            else:
                for path, module, weight, _ in found:
                    require_divides(how.block, getattr(module, weight).shape[1], f"{side}.{path}")
                config = OFTConfig(r=0, oft_block_size=how.block, target_modules=paths, use_cayley_neumann=False)
            inject_adapter_in_model(config, tower)

    def learned(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.towers.named_parameters() if p.requires_grad}

    def _layers(self) -> list[tuple[str, Any]]:
        from peft.tuners.tuners_utils import BaseTunerLayer

        return [(name, m) for name, m in self.towers.named_modules() if isinstance(m, BaseTunerLayer)]

    def _switch(self, on: bool) -> None:
        for _, layer in self._layers():
            layer.enable_adapters(on)

    def _merge(self) -> None:
        layers = self._layers()
        inner = {f"{path}.{name}" for path, layer in layers for name, _ in layer.named_modules() if name}
        for path, layer in ((path, layer) for path, layer in layers if path not in inner):
            parent, _, name = path.rpartition(".")
            if hasattr(layer, "unload_and_optionally_merge_module"):  # of several weights in one
                merged = layer.unload_and_optionally_merge_module(merge=True, safe_merge=False, adapter_names=None)
            else:
                layer.merge()
                merged = layer.get_base_layer()
            setattr(self.towers.get_submodule(parent), name, merged)


# -- where attention is -----------------------------------------------------------------------------------------------


def tower_of(towers: Towers, side: str) -> nn.Module:
    return towers.text_tower if side == "text" else towers.image_tower


def attention_weights(tower: nn.Module) -> Iterator[tuple[str, nn.Module, str, int]]:
    """(path, module, name of the weight, parts) of the projections of queries, keys and values.

    torch's MultiheadAttention, which open_clip uses, keeps the three in one weight.
    """
    for path, module in tower.named_modules():
        if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            yield path, module, "in_proj_weight", 3
        for names in SPLIT:
            layers = [getattr(module, name, None) for name in names]
            if all(isinstance(layer, nn.Linear) for layer in layers):
                yield from ((f"{path}.{name}", getattr(module, name), "weight", 1) for name in names)


def attention_of(tower: nn.Module, side: str) -> list[tuple[str, nn.Module, str, int]]:
    """The same, of a tower that must have some, and no adapter on them."""
    if has_adapter(tower):
        raise UserError(f"the {side} tower has an adapter already; merge it first")
    found = list(attention_weights(tower))
    if not found:
        what = "no attention with projections of queries, keys and values"
        raise UserError(f"the {side} tower has {what}; leave it out of sides")
    return found


def require_divides(block: int, width: int, where: str) -> None:
    if width % block:
        divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
        raise UserError(f"block={block} does not divide the width {width} of {where}; choose from {divisors}")


# -- models of which a part is frozen ---------------------------------------------------------------------------------


class Learner(nn.Module):
    """A model whose state is what learns: checkpoints and exports of it hold no frozen weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_state_dict_post_hook(_drop_frozen)
        self.register_load_state_dict_post_hook(_miss_nothing_frozen)


def _drop_frozen(module: nn.Module, state: dict[str, Tensor], prefix: str, _: Any) -> None:
    learned = {prefix + name for name, p in module.named_parameters() if p.requires_grad}
    for name in [name for name in state if name.startswith(prefix) and name not in learned]:
        del state[name]


def _miss_nothing_frozen(module: nn.Module, keys: Any) -> None:
    learned = {name for name, p in module.named_parameters() if p.requires_grad}
    keys.missing_keys[:] = [name for name in keys.missing_keys if name in learned]
