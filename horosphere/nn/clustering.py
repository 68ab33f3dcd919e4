"""ClusterMixer (HCFormer): patches of an image exchange what they know by being clustered.

Patches are clustered within their window, and windows within the image. Both levels do the same with points x_i,
centres c_j and the values of both:

    A_ij = softmax over j of (similarity(x_i, c_j) + b_ij)      similarity: α·cos in flat space, -α·dist elsewhere
    c'_j = (c_j + Σ_i A_ij v_i) / (1 + Σ_i A_ij)                g_i = Σ_j A_ij c'_j

Maps are (B, H, W, C), channels last: projections are plain products, and once compiled a window is cut out by an index,
not by a pass over memory. Assignments are stored centre by point, (..., M, N), as position biases are: long rows are
aligned.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold, geometry
from horosphere.geometry.manifold import HALF, full_precision
from horosphere.nn.axes import require_width
from horosphere.nn.once import once
from horosphere.nn.slots import kernels

# Vectors shorter than this have no direction: their cosine fades, and its gradient stays finite. Features are about 1.
SHORTEST = 1e-4

Pair = tuple[int, int]


@dataclass
class Assignments:
    """Who belongs to which centre: each patch within its window, and each window. Both sum to 1 over centres."""

    patch: Tensor  # (B, heads, centres, H, W)
    window: Tensor | None  # (B, heads, window centres, rows, columns of windows); None where windows are not clustered


# -- clustering --------------------------------------------------------------------------------------------------------


def clip(v: Tensor) -> Tensor:
    """v / max(1, |v|): tangent vectors at the origin no longer than 1.   (..., w) -> (..., w)"""
    return v * v.square().sum(-1, keepdim=True).clamp_min(1).rsqrt()  # of the square: |v| has no gradient at 0


def similarity(points: Tensor, centres: Tensor, scale: Tensor, manifold: Manifold) -> Tensor:
    """α·cos(c_j, x_i) in flat space, -α·dist(exp0 clip c_j, exp0 clip x_i) elsewhere.

    (..., N, w), (..., M, w) -> (..., M, N)
    """
    if manifold.flat:
        unit_centres = (scale * F.normalize(centres, dim=-1, eps=SHORTEST)).to(points.dtype)
        return unit_centres @ F.normalize(points, dim=-1, eps=SHORTEST).to(points.dtype).mT
    centres, points = (manifold.exp0(clip(_wide(v))) for v in (centres, points))
    return -scale * manifold.pairwise(centres, points)


def assign(logits: Tensor, hard: bool = False) -> Tensor:
    """Softmax over centres.   (..., M, N) -> (..., M, N)

    hard: all of a point goes to its nearest centre, with the gradient of the softmax.
    """
    soft = logits.softmax(-2)
    if not hard:
        return soft
    nearest = torch.zeros_like(soft).scatter(-2, soft.argmax(-2, keepdim=True), 1.0)
    return nearest + (soft - soft.detach())


def effective(shares: Tensor, dim: int = -2) -> Tensor:
    """How many centres a point spreads over: exp of the entropy of its shares.   (..., M, N) -> (..., N)

    M where all are alike, 1 where one centre has it all.

    >>> effective(torch.tensor([[0.5, 1.0], [0.5, 0.0]]))
    tensor([2., 1.])
    """
    return torch.special.entr(_wide(shares)).sum(dim).exp()


def gather(assignment: Tensor, values: Tensor, centres: Tensor) -> Tensor:
    """c'_j = (c_j + Σ_i A_ij v_i) / (1 + Σ_i A_ij).   (..., M, N), (..., N, w), (..., M, w) -> (..., M, w)"""
    return (centres + assignment @ values) / (1 + assignment.sum(-1, keepdim=True))


def cluster(
    points: Tensor,
    values: Tensor,
    centres: Tensor,
    centre_values: Tensor,
    scale: Tensor,
    manifold: Manifold,
    *,
    bias: Tensor | None = None,
    counts: Tensor | None = None,
    hard: bool = False,
) -> tuple[Tensor, Tensor]:
    """g_i = Σ_j A_ij c'_j and A.   (..., N, w) x 2, (..., M, w) x 2, bias (..., M, N) -> (..., N, w), (..., M, N)

    counts (..., 1, N): 0 for points that are there only to fill a shape; they change no centre.
    """
    logits = similarity(points, centres, scale, manifold)
    assignment = assign(logits if bias is None else logits + bias, hard).to(values.dtype)
    gathered = gather(assignment if counts is None else assignment * counts, values, centre_values)
    return assignment.mT @ gathered.to(values.dtype), assignment


_precise_cluster = full_precision(cluster)


# -- maps --------------------------------------------------------------------------------------------------------------


def pool(x: Tensor, grid: Pair, extent: Pair | None = None) -> Tensor:
    """Means over a grid of cells, as adaptive pooling has them, at least in fp32.   (B, H, W, C) -> (B, *grid, C)

    The grid lies on `extent`, which may reach beyond the map. Only patches on the map count; cells without any are 0.
    """
    (height, width), (rows, columns) = x.shape[1:3], grid
    down, across = extent or (height, width)
    dtype = torch.float32 if x.dtype in HALF else x.dtype
    if (down, across) == (height, width) and height % rows == 0 and width % columns == 0:
        cells = x.unflatten(2, (columns, width // columns)).unflatten(1, (rows, height // rows))
        return cells.mean(2, dtype=dtype).mean(3)  # both axes at once is ten times slower on CPU
    in_row, in_column = _cells(height, down, rows, x), _cells(width, across, columns, x)
    sums = in_column @ (in_row @ x.flatten(2)).unflatten(2, (width, -1))
    counts = in_row.sum(1, dtype=dtype)[:, None] * in_column.sum(1, dtype=dtype)
    return sums.to(dtype) / counts.clamp_min(1)[..., None]  # a cell without patches sums to 0


def cut(x: Tensor, windows: Pair, heads: int) -> Tensor:
    """The map in windows, padded below and to the right where they do not fit.

    (B, H, W, heads·w) -> (B, windows, heads, patches, w)
    """
    (height, width), (down, across) = x.shape[1:3], _extent((x.shape[1], x.shape[2]), windows)
    x = F.pad(x, (0, 0, 0, across - width, 0, down - height))
    # (B, rows of windows, height of one, columns of windows, width of one, heads, w)
    x = x.unflatten(3, (heads, -1)).unflatten(2, (windows[1], -1)).unflatten(1, (windows[0], -1))
    return x.permute(0, 1, 3, 5, 2, 4, 6).flatten(4, 5).flatten(1, 2)


def join(x: Tensor, windows: Pair, size: Pair) -> Tensor:
    """Inverse of `cut`.   (B, windows, heads, patches, w) -> (B, H, W, heads·w)"""
    down, across = _extent(size, windows)
    # (B, rows of windows, columns of windows, heads, height of one, width of one, w)
    x = x.unflatten(3, (down // windows[0], across // windows[1])).unflatten(1, windows)
    return x.permute(0, 1, 4, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4).flatten(1, 2)[:, : size[0], : size[1]]


def spread(windows: Tensor, size: Pair) -> Tensor:
    """One vector a window to its patches.   (B, rows, columns, C) -> (B, H, W, C)"""
    rows, columns = windows.shape[1:3]
    down, across = _extent(size, (rows, columns))
    # one axis after the other: the gradient then sums one after the other, which is faster
    x = windows[:, :, :, None].expand(-1, -1, -1, across // columns, -1).flatten(2, 3)
    x = x[:, :, None].expand(-1, -1, down // rows, -1, -1).flatten(1, 2)
    return x[:, : size[0], : size[1]]


def _share(size: Pair, windows: Tensor) -> Tensor:
    """The share of a map's patches that lies in each window.   (rows, columns, 1)"""
    of_rows, of_columns = _shares(size[0], windows.shape[1], windows), _shares(size[1], windows.shape[2], windows)
    return (of_rows[:, None] * of_columns)[..., None]


def _shares(size: int, windows: int, like: Tensor) -> Tensor:
    """The share of a map's rows that lies in each row of windows; the last may reach beyond the map.   (windows)"""
    each = -(-size // windows)
    return (size - each * torch.arange(windows, device=like.device)).clamp(0, each).to(like.dtype) / size


def _left(after: Tensor, before: Tensor, grid: Pair) -> Tensor:
    """The ratio of variances within the windows of a grid; 1 where nothing varied.   (B, H, W, C) x 2 -> ()"""
    size = (before.shape[1], before.shape[2])
    left, there = (
        (_wide(x) - spread(pool(x, grid, _extent(size, grid)), size)).square().sum() for x in (after, before)
    )
    return torch.where(there > 0, left / there.clamp_min(torch.finfo(there.dtype).tiny), 1.0)


def _extent(size: Pair, windows: Pair) -> Pair:
    """The height and width of whole windows over a map of this size."""
    return size[0] + -size[0] % windows[0], size[1] + -size[1] % windows[1]


def _cells(size: int, extent: int, count: int, like: Tensor) -> Tensor:
    """1 where a place lies in a cell: cell i reaches from ⌊i·extent/count⌋ to ⌈(i+1)·extent/count⌉.   (count, size)"""
    cell, place = torch.arange(count, device=like.device)[:, None], torch.arange(size, device=like.device)
    return ((place >= cell * extent // count) & (place < -(-(cell + 1) * extent // count))).to(like.dtype)


def _on_map(size: Pair, windows: Pair, grid: Pair, like: Tensor) -> Tensor:
    """1 for cells of a grid over whole windows that hold a patch, 0 for those wholly beyond the map.   (*grid)"""
    down, across = _extent(size, windows)
    return _cells(size[0], down, grid[0], like).amax(1)[:, None] * _cells(size[1], across, grid[1], like).amax(1)


def on_cuda(x: Tensor) -> bool:
    """Whether to compute in the form that suits a GPU: on CUDA, unless this is being exported."""
    return x.is_cuda and not leaves()


def on_chip(x: Tensor, usual: bool) -> bool:
    """Whether `nn.kernels` serves: on CUDA, in half precision; in fp32 they would spill.

    And only on maps of the `usual` size, or in compiled blocks: to compile kernels for a size takes seconds.
    """
    return (
        kernels is not None
        and on_cuda(x)
        and x.dtype in HALF
        and (usual or torch.compiler.is_compiling())
        and x.stride(0) < 2**31  # their offsets within an image
        and _new_enough(x.get_device())
    )


@torch.compiler.assume_constant_result
def _new_enough(device: int) -> bool:
    """Older cards have less memory on a chip than the kernels take."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


@torch.compiler.assume_constant_result  # asked outside: torch 2.11 tells compiled functions that they are exported
def leaves() -> bool:
    """Whether this is being exported to another program."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in HALF else x


def _watched(layer: nn.Module) -> bool:
    """Whether the layer has hooks, so that it must be called."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def side(centres: int, what: str) -> int:
    """√centres: they lie on a square grid."""
    if centres < 1 or isqrt(centres) ** 2 != centres:
        raise UserError(f"{what} = {centres}: centres lie on a square grid; use {max(1, isqrt(max(centres, 0))) ** 2}")
    return isqrt(centres)


# -- the layer ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterSizes:
    """The sizes of a `ClusterMixer`, in the words of the paper."""

    heads: int
    head_width: int
    map_size: int  # patches per side of the map that position biases are learned on; on other maps they are resized
    windows: int  # per side
    patch_centres: int  # in each window, on a square grid
    window_centres: int  # of the clustering of windows, on a square grid; 1: the mean of the map instead; 0: neither


class ClusterMixer(nn.Module):
    """FC(Norm([g_window, g_patch])).   (B, H, W, dim) -> (B, H, W, dim)

    curvature: c of the levels that are hyperbolic. position_bias: whether b_ij is learned.
    patch_scale, window_scale: α of each level, in the beginning.
    shift: windows are moved by half of one, around the edges.

    >>> sizes = ClusterSizes(heads=2, head_width=4, map_size=8, windows=2, patch_centres=4, window_centres=1)
    >>> mixer = ClusterMixer(dim=6, sizes=sizes)
    >>> mixer(torch.ones(1, 8, 8, 6)).shape, mixer(torch.ones(1, 7, 9, 6)).shape
    (torch.Size([1, 8, 8, 6]), torch.Size([1, 7, 9, 6]))
    """

    def __init__(
        self,
        dim: int,
        sizes: ClusterSizes,
        *,
        patch_geometry: str = "euclidean",
        window_geometry: str = "lorentz",
        curvature: float = 1.0,
        patch_scale: float = 1.0,
        window_scale: float = 1.0,
        position_bias: bool = True,
        assignment: Literal["soft", "hard"] = "soft",
        shift: bool = False,
    ):
        super().__init__()
        heads, size, windows = sizes.heads, sizes.map_size, sizes.windows
        self.heads, self.size, self.windows = heads, size, windows
        self.shift, self.hard = shift, assignment == "hard"
        self.side = side(sizes.patch_centres, "patch_centres")
        self.window_side = side(sizes.window_centres, "window_centres") if sizes.window_centres else 0
        self.patch_manifold = geometry(patch_geometry, sizes.head_width, curvature)
        self.window_manifold = geometry(window_geometry, sizes.head_width, curvature)
        inner = heads * sizes.head_width
        mixed = 2 * inner if sizes.window_centres else inner
        self.project = nn.Linear(dim, 2 * inner)  # features and values: two projections, one product
        self.patch_scale = nn.Parameter(torch.full((1,), float(patch_scale)))
        self.patch_bias = nn.Parameter(torch.zeros(heads, sizes.patch_centres, size, size)) if position_bias else None
        self.window_scale = self.window_bias = None
        if sizes.window_centres > 1:
            self.window_scale = nn.Parameter(torch.full((1,), float(window_scale)))
            if position_bias:
                self.window_bias = nn.Parameter(torch.zeros(heads, sizes.window_centres, windows, windows))
        self.norm = ImageNorm(mixed)
        self.fc = nn.Linear(mixed, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self._mix(x, fuse=True)[0]

    def mix(self, x: Tensor) -> tuple[Tensor, Assignments]:
        """The output and the assignments behind it.

        >>> sizes = ClusterSizes(heads=2, head_width=4, map_size=8, windows=2, patch_centres=4, window_centres=4)
        >>> _, assignments = ClusterMixer(dim=6, sizes=sizes).mix(torch.ones(1, 8, 8, 6))
        >>> assignments.patch.shape, assignments.window.shape
        (torch.Size([1, 2, 4, 8, 8]), torch.Size([1, 2, 4, 2, 2]))
        """
        y, patch, window = self._mix(x, fuse=False)
        assert patch is not None
        (height, width), grid = x.shape[1:3], (self.windows, self.windows)
        down, across = _extent((height, width), grid)
        # (B, rows of windows, columns of windows, heads, centres, height of one, width of one)
        patch = patch.unflatten(4, (down // grid[0], across // grid[1])).unflatten(1, grid)
        patch = patch.permute(0, 3, 4, 1, 5, 2, 6).flatten(5, 6).flatten(3, 4)[..., :height, :width]
        patch = patch.roll(self._half((height, width)), (-2, -1))
        return y, Assignments(patch, None if window is None else window.unflatten(-1, grid))

    @torch.no_grad()
    def passed(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """How much of what tells patches of a window apart is left by clustering, and the same of windows.

        Variance of g around its mean, over that of v: 1 where each place keeps its own value, 0 where all get the mean.

        >>> sizes = ClusterSizes(heads=2, head_width=4, map_size=8, windows=2, patch_centres=4, window_centres=1)
        >>> patch, window = ClusterMixer(dim=6, sizes=sizes).passed(torch.rand(1, 8, 8, 6))
        >>> bool(patch < 0.1), window  # α of 1: nearly the means of windows; and windows are not clustered
        (True, None)
        """
        size, grid, features_values = (x.shape[1], x.shape[2]), (self.windows, self.windows), self._features_values(x)
        values = features_values.chunk(2, -1)[1]
        patch, _ = self._patch_level(features_values, self._centres(features_values))
        of_patch = _left(patch, values, grid)
        if self.window_scale is None:
            return of_patch, None
        window, _ = self._window_level(features_values, features_values, size)
        points = pool(values, grid, _extent(size, grid))
        return of_patch, _left(spread(window, size), spread(points, size), (1, 1))

    def scales(self) -> set[str]:
        """Names of α: single numbers that have far to go, which `optim.groups` gives a learning rate of their own."""
        return {"patch_scale", "window_scale"}

    def _mix(self, x: Tensor, fuse: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The output, A of patches (B, windows, heads, centres, patches), A of windows (B, heads, centres, windows).

        fuse: a kernel may do the patches; it leaves their A out.
        """
        require_width(x, self.project.in_features, self)
        height, width = size = (x.shape[1], x.shape[2])
        cells = (self.windows * self.side, self.windows * self.side)
        features_values = self._features_values(x)
        even = height % cells[0] == 0 and width % cells[1] == 0
        if fuse and self._fusible() and on_chip(features_values, usual=size == (self.size, self.size)):
            sizes = (self.heads, self.windows, self.side, SHORTEST)
            patch, centres = kernels.clusters(features_values, self.patch_scale, self._places(size), *sizes)
            patch_assignment = None
        else:
            centres = self._centres(features_values)
            patch, patch_assignment = self._patch_level(features_values, centres)
        window, window_assignment = None, None
        if self.window_side:
            # means of equal cells have the same means as the map, and are a fraction of its size to read
            whole = centres if even else features_values
            window, window_assignment = self._window_level(whole, features_values, size)
        apart = on_cuda(patch) and type(self.fc) is nn.Linear and not (_watched(self.fc) or _watched(self.norm))
        y = self._read_apart(patch, window) if apart else self.fc(self.norm(patch, window))
        return y.roll(self._half(size), (1, 2)) if self.shift else y, patch_assignment, window_assignment

    def _features_values(self, x: Tensor) -> Tensor:
        """(B, H, W, dim) -> (B, H, W, 2·heads·w), moved where windows are"""
        joint = self.project(x)
        return joint.roll([-n for n in self._half((x.shape[1], x.shape[2]))], (1, 2)) if self.shift else joint

    def _centres(self, features_values: Tensor) -> Tensor:
        """(B, H, W, 2·heads·w) -> (B, cells, cells, 2·heads·w)"""
        size = (features_values.shape[1], features_values.shape[2])
        cells = self.windows * self.side
        return pool(features_values, (cells, cells), _extent(size, (self.windows, self.windows)))

    def _read_apart(self, patch: Tensor, window: Tensor | None) -> Tensor:
        """FC(Norm([g_window, g_patch])), where what comes from a window is computed once for all its patches.

        For CUDA. On the CPU the formula stands as it is: there FLOPs are counted.
        """
        near, far = self.norm.written_out(patch, window)
        if far is None:
            return self.fc(near)
        of_window, of_patch = self.fc.weight.split((far.shape[-1], near.shape[-1]), 1)
        return F.linear(near, of_patch) + spread(F.linear(far, of_window, self.fc.bias), (near.shape[1], near.shape[2]))

    def _fusible(self) -> bool:
        """Whether `nn.kernels` has this clustering: flat and soft, few and narrow centres."""
        few_and_narrow = self.side <= 8 and self.project.out_features <= 128 * self.heads
        return self.patch_manifold.flat and not self.hard and few_and_narrow

    def _half(self, size: Pair) -> Pair:
        """How far windows are shifted, down and across."""
        down, across = _extent(size, (self.windows, self.windows))
        return (down // self.windows // 2, across // self.windows // 2) if self.shift else (0, 0)

    def _patch_level(self, features_values: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
        """g (B, H, W, heads·w) and A (B, windows, heads, centres, patches) of patches.

        (B, H, W, 2·heads·w), centres (B, cells, cells, 2·heads·w).
        """
        height, width = size = (features_values.shape[1], features_values.shape[2])
        grid = (self.windows, self.windows)
        f, v = cut(features_values, grid, 2 * self.heads).chunk(2, 2)
        centre_f, centre_v = cut(centres, grid, 2 * self.heads).chunk(2, 2)
        bias, counts = self._places(size), None
        if size != _extent(size, grid):
            counts = cut(v.new_ones(1, height, width, 1), grid, 1).mT  # `cut` fills up with zeros
            beyond = self._beyond(size, centres)
            bias = beyond if bias is None else bias + beyond
        scale, manifold = self.patch_scale, self.patch_manifold
        g, assignment = cluster(f, v, centre_f, centre_v, scale, manifold, bias=bias, counts=counts, hard=self.hard)
        return join(g, grid, size), assignment

    def _places(self, size: Pair) -> Tensor | None:
        """The position bias on a map of this size.   (windows, heads, centres, patches)"""
        bias: Tensor | None = self.patch_bias
        if bias is None:
            return None
        if bias.shape[-2:] != size:
            bias = F.interpolate(bias, size, mode="bilinear", align_corners=False)
        if self.shift:
            bias = bias.roll([-n for n in self._half(size)], (-2, -1))
        down, across = _extent(size, (self.windows, self.windows))
        bias = F.pad(bias, (0, across - size[1], 0, down - size[0]))
        bias = bias.unflatten(3, (self.windows, -1)).unflatten(2, (self.windows, -1))
        return bias.permute(2, 4, 0, 1, 3, 5).flatten(4, 5).flatten(0, 1)

    def _beyond(self, size: Pair, like: Tensor) -> Tensor:
        """A bias that keeps patches from centres that lie wholly beyond the map.   (windows, 1, centres, 1)

        Finite, so that windows wholly beyond the map get no NaN; nothing reads those.
        """
        grid, cells = (self.windows, self.windows), (self.windows * self.side, self.windows * self.side)
        on_map = cut(_on_map(size, grid, cells, like)[None, ..., None], grid, 1)[0]
        return (1 - on_map) * (torch.finfo(like.dtype).min / 2)

    def _window_level(self, whole: Tensor, features_values: Tensor, size: Pair) -> tuple[Tensor, Tensor | None]:
        """g (B, rows, columns, heads·w) and A (B, heads, window centres, windows) of windows.

        In fp32: they are points, and few. whole: the map, or means of its cells.
        """
        k, grid = self.window_side, (self.windows, self.windows)
        fits = whole.shape[1] % k == 0 and whole.shape[2] % k == 0
        centres = pool(whole if fits else features_values, (k, k))
        if self.window_scale is None:
            return centres[..., centres.shape[-1] // 2 :], None
        points = pool(whole, grid, None if whole is not features_values else _extent(size, grid))
        f, v = cut(points, (1, 1), 2 * self.heads)[:, 0].chunk(2, 1)
        centre_f, centre_v = cut(centres, (1, 1), 2 * self.heads)[:, 0].chunk(2, 1)
        bias = None if self.window_bias is None else self.window_bias.flatten(2)
        counts = None if size == _extent(size, grid) else _on_map(size, grid, grid, f).flatten()
        scale, manifold = self.window_scale, self.window_manifold
        g, assignment = _precise_cluster(
            f, v, centre_f, centre_v, scale, manifold, bias=bias, counts=counts, hard=self.hard
        )
        return g.movedim(1, 2).flatten(2).unflatten(1, grid), assignment


class ImageNorm(nn.GroupNorm):
    """GroupNorm(1): over a whole image, with a weight and a bias per channel.   (B, H, W, C) -> (B, H, W, C)

    windows (B, rows, columns, C'): channels that come before those of x, the same for all patches of a window.
    """

    def __init__(self, dim: int):
        super().__init__(1, dim)

    def forward(self, x: Tensor, windows: Tensor | None = None) -> Tensor:
        if windows is not None:
            x = torch.cat((spread(windows.to(x.dtype), (x.shape[1], x.shape[2])), x), -1)
        if on_cuda(x):
            return self.written_out(x)[0]
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    def written_out(self, x: Tensor, windows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Channels of x (B, H, W, C) and of windows (B, rows, columns, C'), apart.

        For CUDA, where torch's own norm puts channels first, and what follows would read across memory. On the CPU
        torch's own is faster.
        """
        normed = _Norm.apply(x, windows, self.weight, self.bias, self.eps)
        return (normed, None) if windows is None else normed


class _Norm(torch.autograd.Function):
    """y = a x + b with a = w/σ, b = bias - mean·w/σ, without a map of both kinds of channels in memory.

    The gradient is written by hand. It needs only the sums of dy and dy·x by channel, and so reads the map twice;
    autograd would read it three times.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Any:
        variance, mean = torch.var_mean(_wide(x), (1, 2, 3), correction=0)
        own = 0  # channels of windows
        if windows is not None:
            own, share = windows.shape[-1], _share((x.shape[1], x.shape[2]), windows)
            far = (windows * share).sum((1, 2)).mean(-1)
            far_variance = ((windows - far[:, None, None, None]).square() * share).sum((1, 2)).mean(-1)
            of_far = own / (own + x.shape[-1])  # their share of all channels
            variance = of_far * far_variance + (1 - of_far) * variance + of_far * (1 - of_far) * (far - mean).square()
            mean = of_far * far + (1 - of_far) * mean
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(x, windows, weight, mean, inverse)
        scale = (inverse[:, None] * weight)[:, None, None]
        shift = bias - mean[:, None, None, None] * scale
        near = _like(x, torch.addcmul(shift[..., own:], x, scale[..., own:]))
        return near if windows is None else (near, _like(x, torch.addcmul(shift[..., :own], windows, scale[..., :own])))

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor, far: Tensor | None = None) -> tuple[Tensor | None, ...]:
        x, windows, weight, mean, inverse = ctx.saved_tensors
        near, own = _wide(grad), 0
        sums, products = near.sum((1, 2)), (near * x).sum((1, 2))
        if far is not None:
            far, own = _wide(far), far.shape[-1]
            sums = torch.cat((far.sum((1, 2)), sums), 1)
            products = torch.cat(((far * windows).sum((1, 2)), products), 1)
        turned = products - mean[:, None] * sums  # Σ dy (x - mean)
        patches = x.shape[1] * x.shape[2]
        count = patches * weight.shape[0]
        along = (-(inverse**3) * (turned * weight).sum(1) / count)[:, None, None, None]  # of x
        level = (-inverse * (sums * weight).sum(1) / count)[:, None, None, None] - mean[:, None, None, None] * along
        scale = (inverse[:, None] * weight)[:, None, None]
        dx = (near * scale[..., own:] + x * along + level).to(x.dtype)
        dwindows = None
        if far is not None:
            in_window = _share((x.shape[1], x.shape[2]), windows) * patches
            dwindows = far * scale[..., :own] + (windows * along + level) * in_window
        dweight, dbias = (inverse[:, None] * turned).sum(0).to(weight.dtype), sums.sum(0).to(weight.dtype)
        return dx, dwindows, dweight, dbias, None


def _like(x: Tensor, y: Tensor) -> Tensor:
    """y in the dtype of x. torch 2.11 compiles no gradient for a cast to the dtype that y has."""
    return y if y.dtype == x.dtype else y.to(x.dtype)
