"""HyperCLIP: adapt a CLIP by scaling the hyperbolic radius of its attention weights.

    W'_p = log0(S_p ⊗_c exp0(W_p))   row by row, p in {q, k, v}, S_p block-diagonal, the identity at the start

The Möbius product with a matrix is exp0(S·log0(x)) by definition, so W' = W·Sᵀ for every curvature: one batched product
of blocks. (tests/models/test_hyperclip.py has the literal path.) What is left of the geometry is what S does to radii:
the point exp0(z) has radius 2|z|, and σ_min(S)·2|z| <= 2|S z| <= σ_max(S)·2|z|.

    adapter = hyperclip(towers, block=128)        # towers: horosphere.models.towers
    adapter.trainable()                           # train these
    adapter.save("adapter"); adapter.merge()      # W' takes the place of W: no cost at inference
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from horosphere.errors import UserError, one_line
from horosphere.files import new_folder
from horosphere.models.towers import Towers

SIDES = ("text", "image")
CONFIG, WEIGHTS = "adapter.json", "adapter.safetensors"
SPLIT = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"))  # projections that have weights of their own


class BlockScale(nn.Module):
    """W·Sᵀ, for each of `parts` weights stacked on another: a parametrization of torch's.   (parts·O, d) -> the same

    >>> scale = BlockScale(width=4, block=2)
    >>> torch.equal(scale(torch.eye(4)), torch.eye(4))  # S starts as the identity
    True
    """

    def __init__(self, width: int, block: int, parts: int = 1, shared: bool = False):
        super().__init__()
        if width % block:
            raise UserError(f"block={block} does not divide the width {width} of the attention; {_divisors(width)}")
        self.block, self.enabled = block, True
        # (parts, d/n, n, n); shared: one block for all
        self.blocks = nn.Parameter(torch.eye(block).repeat(parts, 1 if shared else width // block, 1, 1))

    def forward(self, weight: Tensor) -> Tensor:
        if not self.enabled:
            return weight
        parts, count = self.blocks.shape[0], weight.shape[1] // self.block
        rows = weight.unflatten(0, (parts, -1)).unflatten(-1, (count, self.block))
        blocks = self.blocks.to(weight.dtype).expand(parts, count, -1, -1)
        return torch.einsum("pokj,pkij->poki", rows, blocks).reshape(weight.shape)


@dataclass(frozen=True)
class HyperClipConfig:
    block: int = 128  # n: S has blocks of n x n
    sides: tuple[str, ...] = SIDES  # of the towers
    shared: bool = False  # one block a projection for all of its channels


class HyperClip:
    """The adapters on a pair of towers, which can have one such set at a time."""

    def __init__(self, towers: Towers, config: HyperClipConfig):
        self.towers, self.config = towers, config
        self.scales: dict[str, BlockScale] = {}
        self.owners: list[tuple[nn.Module, str]] = []
        for side in config.sides:
            tower = towers.text_tower if side == "text" else towers.image_tower
            weights = list(attention_weights(tower))
            if not weights:
                what = "no attention with projections of queries, keys and values"
                raise UserError(f"the {side} tower has {what}; leave it out of sides")
            if any(parametrize.is_parametrized(module, weight) for _, module, weight, _ in weights):
                raise UserError(f"the {side} tower has an adapter already; merge it first")
            for path, module, weight, parts in weights:
                scale = BlockScale(getattr(module, weight).shape[1], config.block, parts, config.shared)
                scale.to(getattr(module, weight).device)
                self.scales[f"{side}.{path}.{weight}"] = scale
                self.owners.append((module, weight))
        towers.requires_grad_(False)
        for (module, weight), scale in zip(self.owners, self.scales.values(), strict=True):
            parametrize.register_parametrization(module, weight, scale)

    def trainable(self) -> list[nn.Parameter]:
        return [scale.blocks for scale in self.scales.values()]

    def count(self) -> int:
        """How many numbers are trained."""
        return sum(p.numel() for p in self.trainable())

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """The towers as they were."""
        self._switch(False)
        try:
            yield
        finally:
            self._switch(True)

    def _switch(self, on: bool) -> None:
        for scale in self.scales.values():
            scale.enabled = on

    def merge(self) -> Towers:
        """W' takes the place of W, for good; the towers have no adapter any more."""
        for module, weight in self.owners:
            parametrize.remove_parametrizations(module, weight, leave_parametrized=True)
        self.scales, self.owners = {}, []
        return self.towers

    # -- files ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """The adapter alone."""
        from safetensors.torch import save_file

        with new_folder(folder, overwrite, mark=CONFIG) as new:
            save_file({name: scale.blocks.detach().contiguous() for name, scale in self.scales.items()}, new / WEIGHTS)
            (new / CONFIG).write_text(json.dumps({"adapter": "hyperclip", **asdict(self.config)}, indent=2) + "\n")

    def load(self, folder: str | Path) -> HyperClip:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            given = load_file(Path(folder) / WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{folder}: no adapter ({one_line(error)}); check the path") from error
        own = {name: tuple(scale.blocks.shape) for name, scale in self.scales.items()}
        if {name: tuple(t.shape) for name, t in given.items()} != own:
            raise UserError(f"{folder}: an adapter of other towers, or of other blocks; give one saved for these")
        with torch.no_grad():
            for name, scale in self.scales.items():
                scale.blocks.copy_(given[name])
        return self


def hyperclip(towers: Towers, block: int = 128, sides: Sequence[str] = SIDES, shared: bool = False) -> HyperClip:
    """Freeze the towers, and put adapters on the queries, keys and values of every attention."""
    chosen = tuple(sides)
    if not chosen or set(chosen) - set(SIDES):
        raise UserError(f"sides={','.join(chosen)}: choose from {', '.join(SIDES)}")
    return HyperClip(towers, HyperClipConfig(block, chosen, shared))


def load_hyperclip(towers: Towers, folder: str | Path) -> HyperClip:
    """An adapter that was saved, on towers of the same kind."""
    try:
        about = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
        config = HyperClipConfig(int(about["block"]), tuple(about["sides"]), bool(about["shared"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{folder}: no adapter ({one_line(error)}); check the path") from error
    return HyperClip(towers, config).load(folder)


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


def radius_loss(features: Tensor, target: float) -> Tensor:
    """How far radii are from a target, relative to it, squared.   (N, D) -> ()"""
    return (2 * features.norm(dim=-1) / target - 1).square().mean()


def _divisors(width: int) -> str:
    return f"choose from {', '.join(str(n) for n in range(1, width + 1) if width % n == 0)}"
