"""HCFormer: an image backbone that mixes tokens by clustering: patches in flat space, windows on the hyperboloid.

Four stages of blocks  x + LS·Mixer(Norm(x)),  x + LS·MLP(Norm(x))  on maps of stride 4, 8, 16, 32. The mixer is
`horosphere.nn.ClusterMixer`; its cost is linear in the number of patches. Inputs may have any size. `cluster_maps`
shows what each patch was clustered with.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from horosphere.errors import UserError
from horosphere.nn.clustering import Assignments, ClusterMixer, ClusterSizes, ImageNorm, effective, side
from horosphere.settings import Amount, Curvature, Decay, Extent, Few, Positive, Size, check

# sizes of a picture decide how a map is cut into windows
UNTRACEABLE = "it reads the sizes of its inputs, which cannot be followed there; use torch.export or torch.compile"


@dataclass(frozen=True)
class HCFormerConfig:
    """Sizes, one number a stage where there are four. The last seven are the ablations of the paper.

    By itself a block begins as in the paper: hardly any of it is added, and α·cos hardly tells centres apart.

    >>> HCFormerConfig(window_geometry="euclidean").strides
    (4, 8, 16, 32)
    """

    no_settings: ClassVar[frozenset[str]] = frozenset({"image_size", "in_channels", "num_classes"})  # of the data

    blocks: tuple[Few, ...] = (2, 2, 6, 2)
    dims: tuple[Size, ...] = (32, 64, 196, 224)
    heads: tuple[Few, ...] = (4, 4, 8, 8)
    head_width: Size = 16
    mlp_ratios: tuple[Few, ...] = (8, 8, 4, 4)
    windows: tuple[Size, ...] = (7, 7, 1, 1)  # per side
    patch_centres: tuple[Size, ...] = (16, 4, 49, 16)  # in a window
    image_size: Size = 224  # that position biases are learned on; any other works
    stem_kernel: Few = 4
    stem_stride: Few = 4
    in_channels: Size = 3
    num_classes: int = 1000  # 0: the mean feature instead of logits
    drop_path: Decay = 0.0  # of the last block; falls linearly to 0 at the first
    layer_scale: Amount = 1e-5  # share of a block that is added, in the beginning
    patch_scale: Positive = 1.0  # α in the beginning: how sharply patches tell centres apart
    window_scale: Positive = 1.0  # the same of windows
    init: Literal["narrow", "wide"] = "narrow"  # of matrices: std 0.02; wide: torch's std of 1/√(3·inputs)

    window_centres: tuple[Extent, ...] = (16, 16, 1, 0)  # 1: the mean of the map; 0: no window level
    patch_geometry: Literal["euclidean", "lorentz"] = "euclidean"
    window_geometry: Literal["euclidean", "lorentz"] = "lorentz"
    curvature: Curvature = 1.0  # κ: of hyperbolic levels, whose curvature is -κ
    # shifted: in every other block windows move by half of one; there is no window level
    hierarchy: Literal["levels", "shifted"] = "levels"
    assignment: Literal["soft", "hard"] = "soft"
    position_bias: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):  # as YAML and JSON have them
                object.__setattr__(self, field.name, tuple(value))
            if isinstance(field.default, tuple) and len(value) != len(self.blocks):
                raise UserError(
                    f"{field.name} has {len(value)} numbers for {len(self.blocks)} stages: give one a stage"
                )
        if not self.blocks:
            raise UserError("blocks names no stage: give the number of blocks in each, as in blocks=2,2,6,2")
        check(self)
        for name in ("patch_centres", "window_centres"):
            for count in getattr(self, name):
                if count or name == "patch_centres":
                    side(count, name)

    def sized(self, width: int) -> dict[str, Any]:
        """What changes in a network whose first stage is so wide: the other stages are in proportion."""
        return {"dims": ",".join(str(max(1, round(dim * width / self.dims[0]))) for dim in self.dims)}

    @property
    def strides(self) -> tuple[int, ...]:
        """Pixels a patch of each stage stands for, per side."""
        return tuple(self.stem_stride * 2**stage for stage in range(len(self.dims)))


HCFORMER = {
    "hcformer-nano": HCFormerConfig(),
    "hcformer-tiny": HCFormerConfig(dims=(32, 64, 196, 320), head_width=24),
    "hcformer-small": HCFormerConfig(dims=(64, 128, 320, 512), head_width=32),
    "hcformer-medium": HCFormerConfig(
        blocks=(4, 4, 12, 4), dims=(64, 128, 320, 512), heads=(6, 6, 12, 12), head_width=32
    ),
    "hcformer-nano-32": HCFormerConfig(  # for 32 x 32 pixels: maps of 32, 16, 8, 4, cut into windows of 8, 4, 8, 4
        image_size=32,
        stem_kernel=3,
        stem_stride=1,
        windows=(4, 4, 1, 1),
        patch_centres=(16, 4, 16, 4),
        window_centres=(4, 4, 1, 0),
        num_classes=100,
    ),
}


def hcformer_config(name: str, **changes: Any) -> HCFormerConfig:
    """The configuration of this name, with changes.

    >>> config = hcformer_config("hcformer-nano", num_classes=100, window_geometry="euclidean")
    >>> config.dims, config.num_classes
    ((32, 64, 196, 224), 100)
    """
    if name not in HCFORMER:
        near = difflib.get_close_matches(name, HCFORMER, 1)
        raise UserError(
            f'unknown model "{name}": ' + (f"did you mean {near[0]}?" if near else f"choose {', '.join(HCFORMER)}")
        )
    known = [field.name for field in fields(HCFormerConfig)]
    for key in changes:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise UserError(
                f'{name} has no setting "{key}": '
                + (f"did you mean {near[0]}?" if near else f"choose among {', '.join(known)}")
            )
    return replace(HCFORMER[name], **changes)


def drop_path(x: Tensor, rate: Tensor | None) -> Tensor:
    """An image's whole branch is dropped with probability `rate`; a branch that stays grows by 1/(1 - rate).

    (B, ...) -> (B, ...)

    >>> drop_path(torch.ones(3, 2), None).sum()  # nothing is dropped
    tensor(6.)
    """
    if rate is None:
        return x
    kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= rate
    return x * (kept / (1 - rate)).to(x.dtype)


class Block(nn.Module):
    """x + LS·Mixer(Norm(x)), then x + LS·MLP(Norm(x)).   (B, H, W, dim) -> (B, H, W, dim)"""

    def __init__(self, config: HCFormerConfig, stage: int, index: int):
        super().__init__()
        dim, hidden = config.dims[stage], config.dims[stage] * config.mlp_ratios[stage]
        shifted = config.hierarchy == "shifted"
        self.mixer_norm = ImageNorm(dim)
        sizes = ClusterSizes(
            heads=config.heads[stage],
            head_width=config.head_width,
            map_size=-(-config.image_size // config.strides[stage]),
            windows=config.windows[stage],
            patch_centres=config.patch_centres[stage],
            window_centres=0 if shifted else config.window_centres[stage],
        )
        self.mixer = ClusterMixer(
            dim,
            sizes,
            patch_geometry=config.patch_geometry,
            window_geometry=config.window_geometry,
            curvature=config.curvature,
            patch_scale=config.patch_scale,
            window_scale=config.window_scale,
            position_bias=config.position_bias,
            assignment=config.assignment,
            shift=shifted and config.windows[stage] > 1 and index % 2 == 1,
        )
        self.mixer_scale = nn.Parameter(torch.full((dim,), float(config.layer_scale)))
        self.mlp_norm = ImageNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.mlp_scale = nn.Parameter(torch.full((dim,), float(config.layer_scale)))

    def forward(self, x: Tensor, drop: Tensor | None = None) -> Tensor:
        """drop: the rate of dropping either branch. As a number it would be compiled in, and every block on its own."""
        return self._add(x, self.mixer(self.mixer_norm(x)), drop)

    def mix(self, x: Tensor) -> tuple[Tensor, Assignments]:
        """The output and the mixer's assignments."""
        mixed, assignments = self.mixer.mix(self.mixer_norm(x))
        return self._add(x, mixed), assignments

    def readings(self, x: Tensor, assignments: Assignments) -> dict[str, Tensor]:
        """What `HCFormer.readings` takes the means of.   x: what came in"""
        patch, window = self.mixer.patch_scale, self.mixer.window_scale
        patch_passed, window_passed = self.mixer.passed(self.mixer_norm(x))
        read = {"patch_centres": effective(assignments.patch, 2), "patch_passed": patch_passed, "patch_scale": patch}
        if assignments.window is not None and window is not None and window_passed is not None:
            read |= {"window_centres": effective(assignments.window, 2), "window_passed": window_passed}
            read |= {"window_scale": window}
        return {**read, "mixer_scale": self.mixer_scale.abs(), "mlp_scale": self.mlp_scale.abs()}

    def _add(self, x: Tensor, mixed: Tensor, drop: Tensor | None = None) -> Tensor:
        x = x + drop_path(self.mixer_scale * mixed, drop)
        return x + drop_path(self.mlp_scale * self.mlp(self.mlp_norm(x)), drop)


class Down(nn.Conv2d):
    """A strided convolution of a map with the channels last.   (B, H, W, in) -> (B, ⌈H/stride⌉, ⌈W/stride⌉, out)

    A last step is filled up with zeros below and to the right: no pixel goes unseen at any size.
    The bias is added last, in its own dtype. So under autocast the first block of a stage gets the same dtype as the
    others, and is compiled with them.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int):
        super().__init__(in_channels, out_channels, kernel, stride, padding=(kernel - stride + 1) // 2)

    def forward(self, x: Tensor) -> Tensor:
        step, (height, width) = self.stride[0], (x.shape[1], x.shape[2])
        x = F.pad(x, (0, 0, 0, -width % step, 0, -height % step)) if height % step or width % step else x
        x = F.conv2d(x.permute(0, 3, 1, 2), self.weight, None, self.stride, self.padding)
        return x.permute(0, 2, 3, 1) + cast(Tensor, self.bias)


class HCFormer(nn.Module):
    """Images to logits.   (B, in_channels, H, W) -> (B, num_classes)

    >>> HCFormer(hcformer_config("hcformer-nano-32"))(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 100])
    """

    def __init__(self, config: HCFormerConfig):
        super().__init__()
        self.config = config
        self.num_classes, self.num_features = config.num_classes, config.dims[-1]
        self.head_hidden_size = self.num_features  # timm's name for the width in front of the classifier
        self.gradient_checkpointing = False
        before = (config.in_channels, *config.dims)
        self.downs = nn.ModuleList(
            Down(before[stage], dim, config.stem_kernel, config.stem_stride)
            if stage == 0
            else Down(before[stage], dim, 3, 2)
            for stage, dim in enumerate(config.dims)
        )
        self.stages = nn.ModuleList(
            nn.ModuleList(Block(config, stage, i) for i in range(count)) for stage, count in enumerate(config.blocks)
        )
        self.norm = ImageNorm(config.dims[-1])
        self.head = self._head()
        self.apply(self._start)

    def _start(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            std = 0.02 if self.config.init == "narrow" else (3 * module.in_features) ** -0.5
            nn.init.trunc_normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)

    def _head(self) -> nn.Module:
        return nn.Linear(self.num_features, self.num_classes) if self.num_classes else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def forward_features(self, images: Tensor) -> Tensor:
        """The normed map of the last stage.   (B, in_channels, H, W) -> (B, C, H/32, W/32)"""
        return self._normed(self.features(images)[-1])

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Mean and linear.   (B, C, h, w) -> (B, num_classes), or (B, C) before the last layer"""
        x = x.mean((2, 3))
        return x if pre_logits else self.head(x)

    def features(self, images: Tensor, stages: int | None = None) -> list[Tensor]:
        """The maps of the first `stages` stages, by default all.   (B, in_channels, H, W) -> [(B, C_s, H_s, W_s)]"""
        x, maps = self._channels_last(images), []
        drops = iter(self._drops(x))
        for down, blocks in list(zip(self.downs, self.stages, strict=True))[:stages]:
            x = down(x)
            for block, drop in zip(blocks, drops, strict=False):  # type: ignore[call-overload]
                x = (
                    checkpoint(block, x, drop, use_reentrant=False)
                    if self.gradient_checkpointing and self.training
                    else block(x, drop)
                )
            maps.append(x.permute(0, 3, 1, 2))
        return maps

    @torch.no_grad()
    def cluster_maps(self, images: Tensor) -> list[list[Assignments]]:
        """Who was clustered with whom: [stage][block], heads within (`Assignments`)."""
        maps: list[list[Assignments]] = [[] for _ in self.stages]
        for stage, _, _, assignments in self._assigned(images):
            maps[stage].append(assignments)
        return maps

    @torch.no_grad()
    def readings(self, images: Tensor) -> dict[str, float]:
        """What learning does to the clusters: means over the blocks of each stage, which are numbered from 1.

        - patch_centres_1, window_centres_1: how many centres a place spreads over, mean over places, heads and images
        - patch_passed_1, window_passed_1: how much of what tells places apart is left by clustering them
        - patch_scale_1, window_scale_1: α
        - mixer_scale_1, mlp_scale_1: magnitude of LayerScale

        >>> model = HCFormer(hcformer_config("hcformer-nano-32", patch_scale=30.0))
        >>> readings = model.readings(torch.rand(2, 3, 32, 32))
        >>> readings["patch_scale_4"], "window_scale_4" in readings  # the last stage has one window
        (30.0, False)
        """
        seen: dict[str, list[Tensor]] = {}
        for stage, block, x, assignments in self._assigned(images):
            for name, values in block.readings(x, assignments).items():
                seen.setdefault(f"{name}_{stage + 1}", []).append(values.float().mean())
        return {name: float(torch.stack(blocks).mean()) for name, blocks in seen.items()}

    def _assigned(self, images: Tensor) -> Iterator[tuple[int, Block, Tensor, Assignments]]:
        """Number of the stage, block, what came in, its assignments, from the first to the last."""
        x = self._channels_last(images)
        for stage, (down, blocks) in enumerate(zip(self.downs, self.stages, strict=True)):
            x = down(x)
            for block in blocks:  # type: ignore[attr-defined]
                came, (x, assignments) = x, block.mix(x)
                yield stage, block, came, assignments

    def _drops(self, like: Tensor) -> list[Tensor | None]:
        """The rate of dropping each block, from 0 at the first to the configured one; None where nothing is dropped."""
        total = sum(self.config.blocks)
        if not (self.training and self.config.drop_path):
            return [None] * total
        return [torch.full((), self.config.drop_path * i / max(1, total - 1), device=like.device) for i in range(total)]

    def __prepare_scriptable__(self) -> Any:
        """What torch.jit.script asks first."""
        raise UserError(f"HCFormer as TorchScript: {UNTRACEABLE}")

    def _channels_last(self, images: Tensor) -> Tensor:
        if isinstance(images, torch.fx.Proxy):
            raise UserError(f"HCFormer in a graph of torch.fx: {UNTRACEABLE}")
        if images.dim() != 4 or images.shape[1] != self.config.in_channels:
            raise UserError(
                f"images of shape {tuple(images.shape)}: "
                f"this model takes (batch, {self.config.in_channels}, height, width)"
            )
        # convolutions keep the layout they are given: from here on channels lie together
        return images.permute(0, 2, 3, 1).contiguous()

    def _normed(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        return [block for stage in self.stages for block in stage.children()]

    # -- what timm's users expect of a backbone -----------------------------------------------------------------------

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        return [
            {"num_chs": dim, "reduction": stride, "module": f"stages.{i}"}
            for i, (dim, stride) in enumerate(zip(self.config.dims, self.config.strides, strict=True))
        ]

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """The normed last map, and those of the stages asked for.

        indices: None for all stages, n for the last n, or a list of them. norm: the last stage is normed there as well.
        """
        if output_fmt != "NCHW":
            raise UserError(f"output_fmt={output_fmt}: maps are NCHW")
        wanted = self._stage_indices(indices)
        maps = self.features(x, max(wanted) + 1 if stop_early and intermediates_only else None)
        whole = len(maps) == len(self.stages)
        last = self._normed(maps[-1]) if whole and (norm or not intermediates_only) else maps[-1]
        chosen = [last if norm and whole and i == len(maps) - 1 else maps[i] for i in wanted]
        return chosen if intermediates_only else (last, chosen)

    def _stage_indices(self, indices: int | Sequence[int] | None) -> list[int]:
        count = len(self.stages)
        chosen = (
            range(count) if indices is None else range(count - indices, count) if isinstance(indices, int) else indices
        )
        if not all(-count <= i < count for i in chosen) or not chosen:
            raise UserError(f"stages {indices}: this model has {count}, from 0 to {count - 1}")
        return [i % count for i in chosen]

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove all that lies behind the last stage asked for."""
        wanted = self._stage_indices(indices)
        self.downs, self.stages = self.downs[: max(wanted) + 1], self.stages[: max(wanted) + 1]
        if prune_norm:
            self.norm = nn.Identity()  # type: ignore[assignment]
        if prune_head:
            self.reset_classifier(0)
        return wanted

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """A new last layer for this many classes; 0: none."""
        self.num_classes = num_classes
        like = self.downs[0].weight
        self.head = self._head().to(like.device, like.dtype).train(self.training)  # type: ignore[arg-type]
        self.head.apply(self._start)

    def no_weight_decay(self) -> set[str]:
        """Names of the position biases. Everything else that should not decay has one dimension."""
        return {name for name, _ in self.named_parameters() if name.endswith(("patch_bias", "window_bias"))}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.gradient_checkpointing = enable

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        blocks = r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"
        return {"stem": r"^downs\.0", "blocks": [(r"^downs\.(\d+)", None), (blocks, None), (r"^norm", (99999,))]}
