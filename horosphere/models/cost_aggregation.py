"""CAT-Seg: which of any named classes is at each pixel (Cho et al. 2024), on any image and text towers.

    cost      C(k, i) = cos(patch_i, text_k)              one map a class, whatever the classes are
    embed     F = conv7(10·C)                             each map alone
    spatial   F(k, :) <- attention over places i          each class alone, the picture as guidance
    classes   F(:, i) <- attention over classes k         each place alone, no positions: the order says nothing
    decode    F <- conv3([up(F); picture]), twice         each class alone
    answer    one logit a class and pixel, sigmoid        classes do not compete in the loss
              + 30·(C - mean over classes)                what the towers say by themselves goes past the head

No weight belongs to a class. So a head that learned from some classes answers for others, and for any number of them.

Three things differ from the paper. The cost also goes past the head, so that a head of few classes need not learn it
anew for others. The guidance of the decoder is a small convolutional net of the picture itself: towers of other
libraries do not all show their inner maps. Attention over classes is the softmax's, not a linear one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.models.adapters import Adaptation, Learner, adapt
from horosphere.models.towers import Towers
from horosphere.settings import Amount, Extent, Few, Size

EMBEDDING = 7  # side of the convolution that embeds the cost
SHARPNESS = 10.0  # of the cost: cosines of names differ by tenths, and weights start for inputs of about 1
DOUBLINGS = 2  # of the resolution in the decoder


@dataclass(frozen=True)
class CostAggregationConfig:
    """Small enough for a few minutes on a CPU. The paper's head: channels 128, window 12, guide 128."""

    channels: Size = 32  # of the embedded cost
    rounds: Few = 2  # of spatial and class aggregation
    heads: Few = 4  # of attention
    window: Size = 8  # side of the windows of spatial attention, in places; every other round they are shifted by half
    guide: Extent = 16  # channels of what the picture adds to costs; 0: nothing
    text_guide: Extent = 16  # channels of what names of classes add to costs; 0: nothing
    past: Amount = 30.0  # weight of the cost that goes past the head; 0: all goes through it


# -- the cost ---------------------------------------------------------------------------------------------------------


def cost_volume(patches: Tensor, texts: Tensor) -> Tensor:
    """C(k, i) = patch_i·text_k / (|patch_i| |text_k|).   (N, D, h, w), (K, D) -> (N, K, h, w)

    >>> cost_volume(torch.tensor([3.0, 0.0]).view(1, 2, 1, 1), torch.tensor([[2.0, 0.0], [0.0, 1.0]])).flatten()
    tensor([1., 0.])
    """
    return torch.einsum("ndhw,kd->nkhw", F.normalize(patches, dim=1), F.normalize(texts, dim=-1))


# -- aggregation ------------------------------------------------------------------------------------------------------


class GuidedAttention(nn.Module):
    """x <- x + softmax(q·kᵀ/√d) v, then x <- x + mlp(x); what x is a map of is guidance g for queries and keys only.

    q, k = W [norm(x); g],  v = W norm(x).   x (..., T, C), g (..., T, G) -> (..., T, C)
    g may have 1 where x has more: W [x; g] = W x + W' g, and W' g is computed once for all of them.
    mask (..., T): which places there are, where some are made up.
    """

    def __init__(self, channels: int, guide: int, heads: int):
        super().__init__()
        if channels % heads:
            raise UserError(f"heads={heads} does not divide channels={channels}; choose a divisor of {channels}")
        self.heads = heads
        self.norm, self.mlp_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.guide = nn.Linear(guide, 2 * channels, bias=False) if guide else None
        self.out = nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, x: Tensor, guide: Tensor | None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        if self.guide is not None and guide is not None:
            more_q, more_k = self.guide(guide).chunk(2, -1)
            q, k = q + more_q, k + more_k
        q, k, v = (t.flatten(0, -3).unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        if mask is not None:
            mask = mask.expand(x.shape[:-1]).flatten(0, -2)[:, None, None]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).flatten(2)).view(x.shape)
        return x + self.mlp(self.mlp_norm(x))


class SpatialAggregation(nn.Module):
    """F'(k, :) = attention over the places of a window, each class alone.   (N, K, h, w, C) -> the same

    Windows begin at the corner, or half a window before it, so that two rounds join neighbouring ones.
    """

    def __init__(self, config: CostAggregationConfig, shifted: bool):
        super().__init__()
        self.window, self.shift = config.window, config.window // 2 * shifted
        self.attention = GuidedAttention(config.channels, config.guide, config.heads)

    def forward(self, x: Tensor, guide: Tensor | None) -> Tensor:
        """guide: (N, 1, h, w, G)"""
        shape = x.shape[2:4]
        there = torch.ones(1, 1, *shape, 1, device=x.device)
        mask = self.apart(there)[..., 0] > 0
        # a window of made-up places alone would have nothing to attend to
        mask = mask | ~mask.any(-1, keepdim=True)
        guided = None if guide is None else self.apart(guide)
        return self.together(self.attention(self.apart(x), guided, mask), shape)

    def apart(self, x: Tensor) -> Tensor:
        """Windows, filled up with zeros at the edges.   (N, K, h, w, C) -> (N, K, windows, side², C)"""
        side, shift = self.window, self.shift
        below, right = (-(length + shift) % side for length in x.shape[2:4])
        x = F.pad(x, (0, 0, shift, right, shift, below))
        x = x.unflatten(3, (-1, side)).unflatten(2, (-1, side))  # (N, K, rows, side, columns, side, C)
        return x.transpose(3, 4).flatten(4, 5).flatten(2, 3)

    def together(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """(N, K, windows, side², C) -> (N, K, h, w, C)"""
        side, shift = self.window, self.shift
        columns = -(-(shape[1] + shift) // side)
        x = x.unflatten(3, (side, side)).unflatten(2, (-1, columns)).transpose(3, 4)
        x = x.flatten(4, 5).flatten(2, 3)
        return x[:, :, shift : shift + shape[0], shift : shift + shape[1]]


class ClassAggregation(nn.Module):
    """F''(:, i) = attention over classes, each place alone, without positions.   (N, K, h, w, C) -> the same"""

    def __init__(self, config: CostAggregationConfig):
        super().__init__()
        self.attention = GuidedAttention(config.channels, config.text_guide, config.heads)

    def forward(self, x: Tensor, guide: Tensor | None) -> Tensor:
        """guide: (K, G)"""
        return self.attention(x.movedim(1, 3), guide).movedim(3, 1)


# -- the decoder ------------------------------------------------------------------------------------------------------


class PictureMaps(nn.Module):
    """Two finer maps of the picture, for the decoder.   (N, 3, H, W) -> (N, guide, ·, ·), four and two times (h, w)

    The finest is what two strided convolutions see, averaged to its size.
    """

    def __init__(self, guide: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, guide, 3, 2, 1), nn.GELU(), nn.Conv2d(guide, guide, 3, 2, 1), nn.GELU())
        self.coarser = nn.Sequential(nn.Conv2d(guide, guide, 3, padding=1), nn.GELU())

    def forward(self, pictures: Tensor, height: int, width: int) -> list[Tensor]:
        """From the coarser to the finer."""
        fine = F.interpolate(self.stem(pictures), (4 * height, 4 * width), mode="area")
        return [self.coarser(F.avg_pool2d(fine, 2)), fine]


class Upsampling(nn.Module):
    """F <- gelu(conv3(gelu(conv3([up(F); g])))) at twice the resolution.   (N, K, C, h, w) -> (N, K, C', 2h, 2w)

    conv([F; g]) = conv(F) + conv'(g), and conv'(g) is computed once for all classes.
    """

    def __init__(self, channels: int, out: int, guide: int):
        super().__init__()
        self.cost = nn.Conv2d(channels, out, 3, padding=1)
        self.guide = nn.Conv2d(guide, out, 3, padding=1, bias=False) if guide else None
        self.mix = nn.Conv2d(out, out, 3, padding=1)

    def forward(self, x: Tensor, guide: Tensor | None) -> Tensor:
        maps = F.interpolate(x.flatten(0, 1), scale_factor=2.0, mode="bilinear", align_corners=False)
        maps = self.cost(maps).unflatten(0, x.shape[:2])
        if self.guide is not None and guide is not None:
            maps = maps + self.guide(guide)[:, None]
        return F.gelu(self.mix(F.gelu(maps.flatten(0, 1)))).unflatten(0, x.shape[:2])


# -- the head ---------------------------------------------------------------------------------------------------------


class CostAggregation(nn.Module):
    """patches (N, D, h, w), texts (K, D), pictures (N, 3, H, W) in floats -> logits (N, K, 4h, 4w)

    >>> head = CostAggregation(6, CostAggregationConfig(channels=8, heads=2))
    >>> head(torch.rand(1, 6, 3, 4), torch.rand(5, 6), torch.rand(1, 3, 48, 64)).shape
    torch.Size([1, 5, 12, 16])
    """

    def __init__(self, width: int, config: CostAggregationConfig):
        super().__init__()
        channels, guide, text_guide = config.channels, config.guide, config.text_guide
        self.embed = nn.Conv2d(1, channels, EMBEDDING, padding=EMBEDDING // 2)
        self.places = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, guide)) if guide else None
        self.names = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, text_guide)) if text_guide else None
        self.spatial = nn.ModuleList(SpatialAggregation(config, shifted=i % 2 == 1) for i in range(config.rounds))
        self.classes = nn.ModuleList(ClassAggregation(config) for _ in range(config.rounds))
        self.maps = PictureMaps(guide) if guide else None
        widths = [max(1, channels // 2**i) for i in range(DOUBLINGS + 1)]
        self.decoder = nn.ModuleList(Upsampling(a, b, guide) for a, b in pairwise(widths))
        self.logit = nn.Conv2d(widths[-1], 1, 3, padding=1)
        self.past = config.past

    def forward(self, patches: Tensor, texts: Tensor, pictures: Tensor) -> Tensor:
        cost = cost_volume(patches, texts)
        maps = self.embed(SHARPNESS * cost.flatten(0, 1)[:, None])
        x = maps.unflatten(0, cost.shape[:2]).movedim(2, -1)  # (N, K, h, w, C)
        places = None if self.places is None else self.places(patches.movedim(1, -1))[:, None]
        names = None if self.names is None else self.names(texts)
        for spatial, classes in zip(self.spatial, self.classes, strict=True):
            x = classes(spatial(x, places), names)
        guides = [None] * DOUBLINGS if self.maps is None else self.maps(pictures, *cost.shape[2:])
        x = x.movedim(-1, 2)
        for stage, guide in zip(self.decoder, guides, strict=True):
            x = stage(x, guide)
        logits = self.logit(x.flatten(0, 1)).view(*cost.shape[:2], *x.shape[3:])
        stand_out = self.past * (cost - cost.mean(1, keepdim=True))
        return logits + F.interpolate(stand_out, logits.shape[2:], mode="bilinear", align_corners=False)


def open_vocabulary_loss(logits: Tensor, classes: Tensor, ignored: int) -> Tensor:
    """Binary cross-entropy of each class at the pixels that count, over all pixels and classes.

    (N, K, H, W), (N, H, W) -> ().  So it is a mean over rows however a batch is cut, and 0 where nothing counts.

    >>> logits, classes = torch.zeros(1, 3, 2, 2), torch.tensor([[[0, 1], [2, -1]]])
    >>> open_vocabulary_loss(logits, classes, ignored=-1)  # 3/4 · log 2
    tensor(0.5199)
    """
    truth = classes[:, None] == torch.arange(logits.shape[1], device=classes.device).view(-1, 1, 1)
    loss = F.binary_cross_entropy_with_logits(logits.float(), truth.float(), reduction="none")
    return (loss * (classes != ignored)[:, None]).sum() / loss.numel()


# -- with towers ------------------------------------------------------------------------------------------------------


class OpenVocabularySegmenter(Learner):
    """Towers, frozen or adapted, and the head on them.   pixels (N, 3, H, W) uint8, K texts -> logits (N, K, H, W)"""

    def __init__(self, towers: Towers, how: Adaptation, config: CostAggregationConfig):
        super().__init__()
        self.adapter = adapt(towers, how)
        self.towers, self.head = towers, CostAggregation(towers.width, config)
        self.stride = _stride(towers)
        self.texts_learn = how.method == "projection" or (how.method != "none" and "text" in how.towers)
        self.known: dict[tuple[str, ...], Tensor] = {}  # vectors of texts, where they do not learn
        self.colour: Tensor
        colour = torch.tensor(towers.mean).mul(255).round().to(torch.uint8)
        self.register_buffer("colour", colour.view(3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor, texts: Sequence[str], every: int = 1) -> Tensor:
        """every: answers in the middle of squares of so many pixels.   -> (N, K, ⌈H/every⌉, ⌈W/every⌉)"""
        whole = self.filled(pixels)
        logits = self.head(self.towers.patches(whole), self.vectors(texts), self.towers.normalised(whole))
        return _cut_to(logits, whole, pixels, every)

    def cosines(self, pixels: Tensor, texts: Sequence[str]) -> Tensor:
        """What the towers alone say: the cost, at the size of the picture.   -> (N, K, H, W)"""
        whole = self.filled(pixels)
        return _cut_to(cost_volume(self.towers.patches(whole), self.vectors(texts)), whole, pixels)

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Made anew in each step where the text tower learns, once where it does not.   K texts -> (K, width)"""
        device = self.colour.device
        if self.texts_learn:
            return self.towers.text({name: t.to(device) for name, t in self.towers.tokens(texts).items()})
        key = tuple(texts)
        if key not in self.known or self.known[key].device != device:
            self.known[key] = self.towers.encode(texts)
        return self.known[key]

    def filled(self, pixels: Tensor) -> Tensor:
        """Whole patches: at the right and below, the mean colour is added."""
        below, right = (-length % self.stride for length in pixels.shape[2:])
        whole = F.pad(pixels - self.colour, (0, right, 0, below)) + self.colour  # bytes wrap around, and back
        return whole.contiguous(memory_format=torch.channels_last)  # a convolutional tower is 1.7 times as fast

    def train(self, mode: bool = True) -> OpenVocabularySegmenter:
        """The towers answer as they do in use, adapted or not: without dropout, with statistics they have."""
        super().train(mode)
        self.towers.eval()
        return self


def _stride(towers: Towers) -> int:
    """Pixels from one patch to the next."""
    blank = torch.zeros(1, 3, towers.size, towers.size, dtype=torch.uint8, device=towers.logit_scale.device)
    with torch.no_grad():
        return towers.size // towers.patches(blank).shape[2]


def _cut_to(maps: Tensor, whole: Tensor, pixels: Tensor, every: int = 1) -> Tensor:
    """Maps of a whole picture at its size, or a part of that, without what was added to it."""
    size = [-(-length // every) for length in whole.shape[2:]]
    maps = F.interpolate(maps, size, mode="bilinear", align_corners=False)
    return maps[..., : -(-pixels.shape[2] // every), : -(-pixels.shape[3] // every)]
