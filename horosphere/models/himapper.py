"""Hi-Mapper: a visual hierarchy for any pretrained backbone (Kwon et al. 2024).

A tree of Gaussians asks the backbone's last feature map for parts of the picture: leaves for small parts, parents for
the larger ones they make up. The answers are added, level by level, to the global feature that the backbone's own
classifier reads. A contrastive loss on the hyperboloid holds the tree together; it costs nothing at inference.

The paper leaves three things open. Here
- a node's samples are drawn half from each child;
- the contrast counts the parent among the nodes a child is compared with, so that it cannot fall without end;
- the KL is a mean over coordinates, so that its weight means the same at every width.
"""

import itertools
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Manifold
from horosphere.geometry.manifold import HALF, learned_curvature
from horosphere.models.backbones import adapt, blocks_of, create_backbone
from horosphere.settings import Amount, Few, Range, Size, check

TEMPERATURE = 0.07  # of the attention that finds parts
# std of leaf means in each coordinate, where draws have std 1: centres start farther apart than draws, siblings nearer
CENTRE_STD, SIBLING_STD = 1.5, 0.01
WEIGHT_STD = 0.02  # small: otherwise attention at that temperature would start with all its weight on one place


@dataclass(frozen=True)
class HiMapperConfig:
    """Sizes of the paper; `leaves`, `levels`, `geometry` and `probabilistic` are its ablations.

    >>> HiMapperConfig(leaves=16, levels=3).sizes
    (16, 8, 4)
    """

    leaves: Size = 32  # N
    levels: Annotated[int, Range(least=2, most=20)] = 4  # L: 32, 16, 8, 4 nodes
    width: Size = 128
    heads: Few = 4
    geometry: Literal["lorentz", "euclidean"] = "lorentz"  # of the contrastive loss
    probabilistic: bool = True  # False: a node is a vector, a parent the mean of its children
    contrast_weight: Amount = 0.1  # α
    kl_weight: Amount = 0.01  # β

    def __post_init__(self) -> None:
        check(self)
        if self.width % self.heads:
            raise UserError(f"width={self.width} does not split into heads={self.heads}: choose a multiple of it")
        halves = 2 ** (self.levels - 1)
        if self.leaves < halves or self.leaves % halves:
            raise UserError(
                f"leaves={self.leaves}: {self.levels} levels halve them {self.levels - 1} times; "
                f"use a multiple of {halves}"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each level, leaves first."""
        return tuple(self.leaves >> level for level in range(self.levels))


# -- the tree ---------------------------------------------------------------------------------------------------------
#
# Nodes are numbered level by level, leaves first. The children of node k of a level are 2k and 2k + 1 one level below.


def tree_levels(sizes: tuple[int, ...]) -> Tensor:
    """Level of each node.   -> (nodes,)

    >>> tree_levels((4, 2))
    tensor([0, 0, 0, 0, 1, 1])
    """
    return torch.tensor([level for level, size in enumerate(sizes) for _ in range(size)])


def tree_parents(sizes: tuple[int, ...]) -> Tensor:
    """Parent of each node, -1 at the top.   -> (nodes,)

    >>> tree_parents((4, 2))
    tensor([ 4,  4,  5,  5, -1, -1])
    """
    starts = list(itertools.accumulate(sizes))
    return torch.tensor(
        [start + k // 2 for start, size in zip(starts, sizes[:-1], strict=False) for k in range(size)]
        + [-1] * sizes[-1]
    )


def mixture_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the mixture, half and half, of each two neighbours.   2 x (N, C) -> 2 x (N/2, C)

    (μ₁ + μ₂)/2 and (σ₁² + σ₂²)/2 + (μ₁ - μ₂)²/4. A difference of squares would cancel for siblings.

    >>> mixture_moments(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [3.0]]))
    (tensor([[1.]]), tensor([[3.]]))
    """
    pairs = mean.unflatten(0, (-1, 2))
    return pairs.mean(1), variance.unflatten(0, (-1, 2)).mean(1) + ((pairs[:, 0] - pairs[:, 1]) / 2).square()


def kl_to_standard(mean: Tensor, variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) || N(0, 1)) = (σ² + μ² - 1 - log σ²)/2 of each coordinate.   (..., C) -> (..., C)

    >>> kl_to_standard(torch.tensor([0.0, 2.0]), torch.ones(2))
    tensor([0., 2.])
    """
    return (variance + mean.square() - 1 - variance.log()) / 2


def hierarchical_contrast(points: Tensor, parents: Tensor, levels: Tensor, manifold: Manifold) -> Tensor:
    """Mean over children i of -log e^{-d(i, parent)} / (e^{-d(i, parent)} + Σ_j e^{-d(i, j)}).   (B, nodes, d) -> ()

    j: the other nodes of i's level. Similarity is minus the distance. The paper prints the opposite sign, which pushes
    children from their parents and levels together.
    Only differences of distances count: once in order, the tree as a whole may still grow.

    >>> points = torch.tensor([[[0.0], [4.0], [0.0], [4.0]]])  # two children, each at its parent
    >>> loss = hierarchical_contrast(points, torch.tensor([2, 3, -1, -1]), torch.tensor([0, 0, 1, 1]), Euclidean())
    >>> round(loss.item(), 4)  # log(1 + e⁻⁴)
    0.0181
    """
    node = torch.arange(len(parents), device=points.device)
    # a lone top node keeps itself: without anything to compare with it would be NaN
    itself = (node[:, None] == node) & (parents >= 0)[:, None]
    compared = (levels[:, None] == levels) & ~itself | (parents[:, None] == node)
    similarity = -manifold.pairwise(points, points.view_as(points))  # torch.compile refuses the same tensor twice
    logits = similarity.masked_fill(~compared, -torch.inf)
    return F.cross_entropy(logits.flatten(0, 1), parents.repeat(points.shape[0]), ignore_index=-1)


class Tree(nn.Module):
    """N leaf Gaussians over R^C; a parent is the mixture of its two children."""

    def __init__(self, sizes: tuple[int, ...], dim: int, probabilistic: bool):
        super().__init__()
        self.sizes = sizes
        centres = torch.randn(sizes[0] // 2, dim).repeat_interleave(2, 0)  # siblings side by side
        self.mean = nn.Parameter(CENTRE_STD * centres + SIBLING_STD * torch.randn(sizes[0], dim))
        self.log_variance = nn.Parameter(nn.init.xavier_uniform_(torch.empty(sizes[0], dim))) if probabilistic else None

    def moments(self) -> list[tuple[Tensor, Tensor]]:
        """Mean and variance of the nodes, level by level.   -> L x 2 x (N_l, C)"""
        variance = torch.zeros_like(self.mean) if self.log_variance is None else self.log_variance.exp()
        levels: list[tuple[Tensor, Tensor]] = [(self.mean, variance)]
        for _ in self.sizes[1:]:
            levels.append(mixture_moments(*levels[-1]))
        return levels

    def means(self) -> Tensor:
        """One query a node.   -> (nodes, C)"""
        return torch.cat([mean for mean, _ in self.moments()])

    def sample(self, count: int) -> Tensor:
        """2^(l-1) draws of a node of level l: N queries a level, those of a node side by side.   -> (count, L·N, C)

        Half of a node's draws come from each child: together they are the mixture, and no child is ever missed.
        """
        levels = self.moments()
        sources = [levels[0], *levels[:-1]]  # a level draws from its children, leaves from themselves
        mean, variance = (
            torch.cat([m.repeat_interleave(self.sizes[0] // len(m), 0) for m in part])
            for part in zip(*sources, strict=True)
        )
        return mean + variance.sqrt() * torch.randn(count, *mean.shape, dtype=mean.dtype, device=mean.device)


# -- attention --------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """softmax(q·k·scale) v.   (B, Q, w), (B, M, w) -> (B, Q, w)"""

    def __init__(self, width: int, heads: int, scale: float | None = None):
        super().__init__()
        self.heads, self.scale = heads, scale or (width // heads) ** -0.5
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = self._project(x, memory)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scale)
        return self.out(out.transpose(1, 2).flatten(2))

    def weights(self, x: Tensor, memory: Tensor) -> Tensor:
        """The weights of each query over the memory, mean over heads.   -> (B, Q, M)"""
        query, key, _ = self._project(x, memory)
        return (self.scale * query @ key.mT).softmax(-1).mean(1)

    def _project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        parts = (self.query(x), *self.key_value(memory).chunk(2, -1))
        return tuple(part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)


class Layer(nn.Module):
    """x + cross(x, memory), x + self(x), x + MLP(x), each behind a norm.   (B, Q, w), (B, M, w) -> (B, Q, w)"""

    def __init__(self, width: int, heads: int, scale: float | None = None):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.cross_attention = Attention(width, heads, scale)
        self.self_attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, memory: Tensor, beside: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """beside (B, K, w): what the self-attention sees besides x. mask (Q, Q): who sees whom in it."""
        x = x + self.cross_attention(self.norms[0](x), memory)
        own = self.norms[1](x)
        x = x + self.self_attention(own, own if beside is None else torch.cat((own, beside), 1), mask)
        return x + self.mlp(self.norms[2](x))

    def attention(self, x: Tensor, memory: Tensor) -> Tensor:
        """Weights of the cross-attention.   -> (B, Q, M)"""
        return self.cross_attention.weights(self.norms[0](x), memory)


def narrow(dim: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, width))


class Decomposition(nn.Module):
    """D: queries find their parts in the map. One layer does all levels at once; queries see their own level only."""

    def __init__(self, map_dim: int, dim: int, width: int, heads: int):
        super().__init__()
        self.memory = narrow(map_dim, width).append(nn.LayerNorm(width))
        self.query = narrow(dim, width)
        self.layer = Layer(width, heads, 1 / TEMPERATURE)
        self.back = narrow(width, dim)

    def forward(self, queries: Tensor, levels: Tensor, places: Tensor) -> Tensor:
        """(B or 1, Q, C), (Q,), (B, H·W, C_map) -> (B, Q, w); `back` takes nodes to C"""
        x = self.query(queries).expand(places.shape[0], -1, -1)
        return self.layer(x, self.memory(places), mask=levels[:, None] == levels)

    def attention(self, queries: Tensor, places: Tensor) -> Tensor:
        """Where each query looks.   -> (B, Q, H·W)"""
        return self.layer.attention(self.query(queries).expand(places.shape[0], -1, -1), self.memory(places))


class Encoding(nn.Module):
    """G: v^l = G^l(v^{l-1}, S_l), leaves first.   (B, C), (B, nodes, C) -> (B, C)

    Self-attention of a single query would be a linear map: here v sees itself beside the level's nodes.
    """

    def __init__(self, dim: int, width: int, heads: int, sizes: tuple[int, ...]):
        super().__init__()
        self.sizes = sizes
        self.memory = narrow(dim, width).append(nn.LayerNorm(width))
        self.query = narrow(dim, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in sizes)
        self.back = narrow(width, dim)

    def forward(self, v: Tensor, nodes: Tensor) -> Tensor:
        x = self.query(v).unsqueeze(1)
        for layer, level in zip(self.layers, self.memory(nodes).split(self.sizes, 1), strict=True):
            x = layer(x, level, beside=level)
        return self.back(x).squeeze(1)


# -- the plug-in ------------------------------------------------------------------------------------------------------


class NodeSpace(Lorentz):
    """The hyperboloid of curvature -c. c starts at 1 and is learned between 0.1 and 10.

    It is the root of what `Lorentz` learns, between 0.01 and 100.
    """

    def __init__(self) -> None:
        super().__init__(c=1.0, learn=True)

    @property
    def c(self) -> float | Tensor:
        return learned_curvature(self.c0, self.log_ratio).sqrt()  # not super().c: torch.compile cannot follow it


@dataclass
class TreeLoss:
    """Scalars that a training step adds to the cross-entropy: total = α·contrast + β·kl."""

    contrast: Tensor
    kl: Tensor
    total: Tensor


class Mapper(nn.Module):
    """Tree, decomposition, map to the manifold, encoding: everything but the backbone.

    (B, C_map, H, W), (B, C) -> v + v^L (B, C), and in training the loss of the tree
    """

    levels: Tensor
    parents: Tensor

    def __init__(self, map_dim: int, dim: int, config: HiMapperConfig):
        super().__init__()
        self.config = config
        self.tree = Tree(config.sizes, dim, config.probabilistic)
        self.decomposition = Decomposition(map_dim, dim, config.width, config.heads)
        self.to_tangent = nn.Linear(dim, config.width, bias=False)
        self.manifold: Manifold = NodeSpace() if config.geometry == "lorentz" else Euclidean()
        self.encoding = Encoding(dim, config.width, config.heads, config.sizes)
        self.register_buffer("levels", tree_levels(config.sizes), persistent=False)
        self.register_buffer("parents", tree_parents(config.sizes), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=WEIGHT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.zeros_(cast(nn.Linear, self.encoding.back[-1]).weight)  # so a pretrained backbone starts as itself

    def forward(self, feature_map: Tensor, v: Tensor) -> tuple[Tensor, TreeLoss | None]:
        nodes = self.nodes(feature_map)
        return v + self.encoding(v, nodes), self.loss(nodes) if self.training else None

    def nodes(self, feature_map: Tensor) -> Tensor:
        """S.   (B, C_map, H, W) -> (B, nodes, C).   Training draws queries; otherwise each node asks by its mean.

        Equal queries of a level count once in the attention, so N of them a level would give the same.
        """
        places = feature_map.flatten(2).mT
        if not (self.training and self.config.probabilistic):
            return self.decomposition.back(self.decomposition(self.tree.means().unsqueeze(0), self.levels, places))
        n, depth = self.config.leaves, self.config.levels
        draws = self.decomposition(self.tree.sample(places.shape[0]), self._level_of_draws(), places)
        by_level = draws.unflatten(1, (depth, n)).unbind(1)
        nodes = [
            level.unflatten(1, (size, -1)).mean(2) for level, size in zip(by_level, self.config.sizes, strict=True)
        ]
        return self.decomposition.back(torch.cat(nodes, 1))

    def points(self, nodes: Tensor) -> Tensor:
        """Nodes on the manifold.   (B, nodes, C) -> (B, nodes, w)

        In fp32 also under autocast: distances have no digits left in bf16.
        """
        tangent = self.to_tangent(nodes)
        return self.manifold.lift(tangent.float() if tangent.dtype in HALF else tangent)

    def loss(self, nodes: Tensor) -> TreeLoss:
        contrast = hierarchical_contrast(self.points(nodes), self.parents, self.levels, self.manifold)
        kl = (
            kl_to_standard(*self.tree.moments()[-1]).mean() if self.config.probabilistic else torch.zeros_like(contrast)
        )
        return TreeLoss(contrast, kl, self.config.contrast_weight * contrast + self.config.kl_weight * kl)

    def attention(self, feature_map: Tensor) -> Tensor:
        """Where each node looks, by its mean.   (B, C_map, H, W) -> (B, nodes, H, W), each map sums to 1"""
        weights = self.decomposition.attention(self.tree.means().unsqueeze(0), feature_map.flatten(2).mT)
        return weights.unflatten(2, feature_map.shape[-2:])

    def _level_of_draws(self) -> Tensor:
        return torch.arange(self.config.levels, device=self.levels.device).repeat_interleave(self.config.leaves)


@dataclass
class Hierarchy:
    """The trees of B images. Nodes come level by level, leaves first."""

    attention: Tensor  # (B, nodes, H, W) over the feature map, each sums to 1
    points: Tensor  # (B, nodes, width) on the manifold: space components
    parents: Tensor  # (nodes,), -1 at the top
    levels: Tensor  # (nodes,), 0 for leaves
    manifold: Manifold


class HiMapper(nn.Module):
    """A backbone, the plug-in, a classifier.   (B, 3, H, W) -> logits (B, classes); in training (logits, `TreeLoss`)

    backbone: a name ("timm:resnet50", "torchvision:swin_t", "hcformer-nano"), a model of theirs, or any `Backbone`.
    Weights are random unless `pretrained` asks for the published ones. A classifier of the right size is kept.

    >>> model = HiMapper("hcformer-nano-32", num_classes=10, config=HiMapperConfig(leaves=8, levels=3)).eval()
    >>> model.hierarchy(torch.rand(2, 3, 32, 32)).attention.shape  # 8 + 4 + 2 nodes look at a map of 4 x 4
    torch.Size([2, 14, 4, 4])
    """

    def __init__(
        self,
        backbone: str | nn.Module,
        num_classes: int,
        config: HiMapperConfig | None = None,
        pretrained: bool = False,
    ):
        super().__init__()
        self.config = config or HiMapperConfig()
        model = create_backbone(backbone, num_classes, pretrained) if isinstance(backbone, str) else backbone
        self.backbone, head = adapt(model)
        self.mapper = Mapper(self.backbone.map_width, self.backbone.width, self.config)
        self.head = (
            head
            if head is not None and head.out_features == num_classes
            else nn.Linear(self.backbone.width, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, TreeLoss]:
        v, loss = self.mapper(*self.backbone.features(x))
        logits = self.head(v)
        return logits if loss is None else (logits, loss)

    @torch.no_grad()
    def hierarchy(self, x: Tensor) -> Hierarchy:
        """The tree of nodes of each image, as inference sees it.   (B, 3, H, W)"""
        if self.training:
            raise UserError("hierarchy() shows what inference sees: call model.eval() first")
        feature_map, _ = self.backbone.features(x)
        points, attention = self.mapper.points(self.mapper.nodes(feature_map)), self.mapper.attention(feature_map)
        return Hierarchy(attention, points, self.mapper.parents, self.mapper.levels, self.mapper.manifold)

    def reset_classifier(self, num_classes: int) -> None:
        old = self.head.weight
        self.head = nn.Linear(self.backbone.width, num_classes, device=old.device, dtype=old.dtype)

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        return [*blocks_of(self.backbone), self.mapper]

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that should not decay, as in timm. Vectors never decay anyway."""
        of_backbone = {f"backbone.{name}" for name in getattr(self.backbone, "no_weight_decay", set)()}
        return (of_backbone | {"mapper.tree.mean", "mapper.tree.log_variance"}) & {
            name for name, _ in self.named_parameters()
        }


@dataclass(frozen=True)
class Overhead:
    """What the plug-in adds to its backbone."""

    parameters: int
    gmacs: float  # of one image at inference


def overhead(model: HiMapper, image_size: int | tuple[int, int] = 224) -> Overhead:
    """Parameters and operations of the plug-in, counted: the backbone runs once, for the shape of its map.

    >>> overhead(HiMapper("hcformer-nano-32", num_classes=10), image_size=32).parameters
    1537857
    """
    from torch.utils.flop_counter import FlopCounterMode

    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    some = model.head.weight
    was_training = {module: module.training for module in model.modules()}
    state = {
        name: value.to("meta")
        for name, value in itertools.chain(model.mapper.named_parameters(), model.mapper.named_buffers())
    }
    try:
        model.eval()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            features = model.backbone.features(torch.zeros(1, 3, height, width, device=some.device, dtype=some.dtype))
            of_backbone = counter.get_total_flops()
            # on the device "meta", because attention is not counted on the CPU
            torch.func.functional_call(model.mapper, state, tuple(f.to("meta") for f in features))
            of_both = counter.get_total_flops()
    finally:
        for module, training in was_training.items():
            module.training = training
    return Overhead(sum(p.numel() for p in model.mapper.parameters()), (of_both - of_backbone) / 2e9)
