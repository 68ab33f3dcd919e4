"""The ClusterMixer against its definition patch by patch, and where features vanish or coincide."""

from dataclasses import asdict, replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz
from horosphere.nn import clustering
from horosphere.nn.clustering import (
    ClusterMixer,
    ClusterSizes,
    ImageNorm,
    assign,
    clip,
    cut,
    effective,
    join,
    leaves,
    pool,
    similarity,
    spread,
)
from tests.nn import clustering_reference

SIZES = ClusterSizes(heads=2, head_width=3, map_size=6, windows=3, patch_centres=4, window_centres=4)
GEOMETRIES = {
    "E+E": ("euclidean", "euclidean"),
    "H+H": ("lorentz", "lorentz"),
    "H window, E patch": ("euclidean", "lorentz"),
}


def mixer(seed: int = 0, shake: float = 0.5, geometries: str = "H window, E patch", **changes) -> ClusterMixer:
    """In fp64, with every parameter moved: no bias is zero, no scale is one."""
    torch.manual_seed(seed)
    sizes = {name: changes.pop(name) for name in asdict(SIZES) if name in changes}
    patch, window = GEOMETRIES[geometries]
    m = ClusterMixer(6, replace(SIZES, **sizes), patch_geometry=patch, window_geometry=window, **changes).double()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(shake * torch.randn_like(p))
    return m


def image(height: int, width: int, batch: int = 2, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, height, width, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_is_its_definition(m: ClusterMixer, x: torch.Tensor) -> None:
    with torch.no_grad():
        assert_close(m(x), torch.stack([clustering_reference.mixer(m, one) for one in x]), atol=1e-7, rtol=1e-6)


# -- the definition ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("curvature", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("geometries", ["H+H", "H window, E patch"])
def test_each_geometry_is_its_definition(geometries, curvature):
    assert_is_its_definition(mixer(geometries=geometries, curvature=curvature), image(6, 6, batch=1))


def test_flat_space_is_its_definition():
    assert_is_its_definition(mixer(geometries="E+E"), image(6, 6))


# fits; cells do not; windows do not; whole windows beyond the map; smaller than the grid
@pytest.mark.parametrize("size", [(12, 6), (9, 9), (8, 10), (4, 7), (2, 1)])
@pytest.mark.parametrize("geometries", ["H+H", "H window, E patch"])
def test_any_map_is_its_definition(size, geometries):
    assert_is_its_definition(mixer(geometries=geometries), image(*size, batch=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"assignment": "hard"},
        {"position_bias": False},
        {"window_centres": 0},
        {"window_centres": 1},
        {"window_centres": 9},
        {"window_centres": 0, "shift": True},
        {"windows": 1, "patch_centres": 9, "window_centres": 1},
        {"patch_centres": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [(6, 6), (7, 8)])
def test_each_form_is_its_definition(changes, size):
    assert_is_its_definition(mixer(**changes), image(*size, batch=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_hyperbolic_similarity_is_minus_the_distance(c, dtype):
    torch.manual_seed(0)
    L, x, y, scale = (
        Lorentz(c),
        2 * torch.randn(5, 8, dtype=dtype),
        torch.randn(3, 8, dtype=dtype),
        torch.tensor([1.7], dtype=dtype),
    )
    expected = -scale * L.dist(L.exp0(clip(y))[:, None], L.exp0(clip(x))[None])
    assert_close(similarity(x, y, scale, L), expected, atol=1e-6 if dtype is torch.float32 else 1e-12, rtol=1e-5)


def test_clip_keeps_short_vectors_and_the_direction_of_long_ones():
    v = torch.randn(50, 4, dtype=torch.float64) * torch.logspace(-3, 3, 50, dtype=torch.float64)[:, None]
    long = v.norm(dim=-1) > 1
    assert torch.equal(clip(v)[~long], v[~long])
    assert_close(clip(v)[long], F.normalize(v[long], dim=-1))


# -- assignments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(6, 6), (7, 11)])
@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_assignments_sum_to_one_over_centres(assignment, size):
    _, assignments = mixer(assignment=assignment).mix(image(*size))
    assert assignments.patch.shape == (2, 2, 4, *size)
    assert assignments.window is not None
    assert assignments.window.shape == (2, 2, 4, 3, 3)
    for a in (assignments.patch, assignments.window):
        assert_close(a.sum(2), torch.ones_like(a.sum(2)))
        assert (a >= 0).all()
        if assignment == "hard":
            assert_close(a.amax(2), torch.ones_like(a.amax(2)))


def test_hard_is_the_limit_of_soft_and_has_its_gradient():
    logits = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    assert_close(assign(logits, hard=True), assign(1e6 * logits), atol=1e-9, rtol=0)
    weights = torch.randn(3, 5, 7, dtype=torch.float64)
    (hard,) = torch.autograd.grad((assign(logits, hard=True) * weights).sum(), logits)
    (soft,) = torch.autograd.grad((assign(logits) * weights).sum(), logits)
    assert_close(hard, soft)


@pytest.mark.parametrize("centres", [1, 4, 16])
def test_a_point_spreads_over_all_centres_where_shares_are_even_and_over_one_where_one_has_it_all(centres):
    even = torch.full((2, centres, 7), 1 / centres, dtype=torch.float64)
    assert_close(effective(even), torch.full((2, 7), float(centres), dtype=torch.float64))
    chosen = F.one_hot(torch.randint(centres, (2, 7)), centres).mT.double()
    assert torch.equal(effective(chosen), torch.ones(2, 7, dtype=torch.float64))
    some = torch.cat((even, torch.zeros(2, 3, 7, dtype=torch.float64)), 1)  # centres without a share do not count
    assert_close(effective(some), effective(even))


def test_a_larger_scale_spreads_points_over_fewer_centres():
    x, before = image(6, 6), (4.0, 4.0)
    for by in (1.0, 3.0, 10.0, 100.0):
        _, assignments = mixer(shake=0.0, patch_scale=by, window_scale=by).mix(x)
        now = tuple(float(effective(shares.detach(), 2).mean()) for shares in (assignments.patch, assignments.window))
        assert all(1 <= a < b for a, b in zip(now, before, strict=True))
        before = now


def varied(x: torch.Tensor, cells: list[list[tuple[int, int]]]) -> torch.Tensor:
    """Σ of squared distances to the mean of their cell, over places (H, W, C)."""
    groups = [torch.stack([x[place] for place in places]) for places in cells]
    return sum(((group - group.mean(0)) ** 2).sum() for group in groups)


@pytest.mark.parametrize("size", [(6, 6), (7, 8)])
@pytest.mark.parametrize("geometries", GEOMETRIES)
def test_what_is_passed_is_the_variance_of_outputs_over_that_of_values(geometries, size):
    m, x = mixer(geometries=geometries, patch_scale=5.0, window_scale=5.0), image(*size, batch=1)
    m.norm, m.fc = Unnormed(), torch.nn.Identity()
    with torch.no_grad():
        window_g, patch_g = m(x)[0].chunk(2, -1)
        v = (x @ m.project.weight.T + m.project.bias)[0].chunk(2, -1)[1]
        tall, wide = (-(-length // 3) for length in size)
        all_places = [(row, column) for row in range(size[0]) for column in range(size[1])]
        cells = [[p for p in all_places if (p[0] // tall, p[1] // wide) == (i, j)] for i in range(3) for j in range(3)]
        window_v = torch.empty_like(v)
        for places in cells:
            for place in places:
                window_v[place] = torch.stack([v[p] for p in places]).mean(0)
        patch, window = m.passed(x)
    assert_close(patch, varied(patch_g, cells) / varied(v, cells))
    assert_close(window, varied(window_g, [all_places]) / varied(window_v, [all_places]))


def test_sharper_clusters_pass_more_and_even_ones_hardly_anything():
    x, before = image(6, 6), (0.0, 0.0)
    for scale in (0.1, 1.0, 10.0, 100.0):
        now = mixer(shake=0.0, patch_scale=scale, window_scale=scale).passed(x)
        assert all(a < float(b) < 1 for a, b in zip(before, now, strict=True))
        before = tuple(map(float, now))
        assert scale > 0.1 or max(before) < 0.01


def test_a_patch_alone_in_its_window_is_passed_whole():
    m = mixer(windows=6, patch_centres=1, window_centres=0)
    assert m.passed(image(6, 6))[0] == 1
    assert m.passed(image(6, 6))[1] is None


@pytest.mark.parametrize("size", [(6, 6), (7, 8)])
def test_what_shifted_windows_pass_is_that_of_the_moved_map(size):
    shifted, plain = mixer(window_centres=0, shift=True), mixer(window_centres=0)
    with torch.no_grad():
        shifted.patch_bias.zero_(), plain.patch_bias.zero_()
    x, half = image(*size), [-(-(-length // 3) // 2) for length in size]
    assert_close(shifted.passed(x)[0], plain.passed(x.roll(half, (1, 2)))[0])


class Unnormed(torch.nn.Module):
    def forward(self, x, windows=None):
        return x if windows is None else torch.cat((spread(windows, x.shape[1:3]), x), -1)


def test_patches_of_other_windows_and_images_are_not_heard_without_the_window_level():
    m, x = mixer(window_centres=0), image(6, 6)
    m.norm = Unnormed()  # the norm is over the whole image
    other = x.clone()
    other[0, 3, 3] += 1  # the window of rows 2-3, columns 2-3
    changed = (m(x) != m(other)).any(-1)
    expected = torch.zeros_like(changed)
    expected[0, 2:4, 2:4] = True
    assert torch.equal(changed, expected)


def test_the_window_level_reaches_the_whole_map():
    m, x = mixer(), image(6, 6)
    m.norm = Unnormed()
    other = x.clone()
    other[0, 3, 3] += 1
    assert (m(x) != m(other)).any(-1)[0].all()


def together(near, far):
    return near if far is None else torch.cat((spread(far, near.shape[1:3]), near), -1)


@pytest.mark.parametrize(
    ("size", "windows"), [((8, 8), None), ((8, 8), (4, 4)), ((7, 9), (4, 4)), ((5, 6), (1, 1)), ((5, 3), (4, 2))]
)
def test_the_norm_written_out_is_torchs(size, windows):
    torch.manual_seed(0)
    norm = ImageNorm(5 if windows else 3).double()
    with torch.no_grad():
        for p in norm.parameters():
            p += torch.randn_like(p)
    far = (3 + torch.randn(2, *windows, 2, dtype=torch.float64)).requires_grad_() if windows else None
    near = torch.randn(2, *size, 3, dtype=torch.float64, requires_grad=True)
    inputs = [*norm.parameters(), near, *([far] if far is not None else [])]
    weights = torch.randn(2, *size, norm.num_channels, dtype=torch.float64)
    apart, expected = together(*norm.written_out(near, far)), norm(near, far)
    assert_close(apart, expected)
    for a, b in zip(*(torch.autograd.grad((y * weights).sum(), inputs) for y in (apart, expected)), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("windows", [None, (2, 2)])
def test_the_norm_written_out_compiles_with_its_gradient(windows, dtype):
    torch.manual_seed(0)
    norm = ImageNorm(5 if windows else 3)
    far = torch.randn(2, *windows, 2, requires_grad=True) if windows else None
    near = torch.randn(2, 6, 5, 3).to(dtype).requires_grad_()
    inputs = [*norm.parameters(), near, *([far] if far is not None else [])]
    compiled = torch.compile(norm.written_out, backend="aot_eager", fullgraph=True)
    both = [
        torch.autograd.grad(together(*f(near, far)).float().square().sum(), inputs)
        for f in (norm.written_out, compiled)
    ]
    for a, b in zip(*both, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize(
    ("size", "window_centres", "shift"), [((8, 8), 4, False), ((7, 9), 4, True), ((6, 6), 1, False), ((6, 6), 0, False)]
)
def test_read_apart_is_the_formula(size, window_centres, shift, monkeypatch):
    m, x = mixer(window_centres=window_centres, shift=shift), image(*size).requires_grad_()
    weights = torch.randn(*x.shape[:3], 6, dtype=x.dtype)
    inputs = [x, *m.parameters()]
    expected = m(x)
    monkeypatch.setattr(clustering, "on_cuda", lambda x: True)
    monkeypatch.setattr(clustering, "on_chip", lambda *_, **__: False)
    monkeypatch.setattr(
        m.fc, "forward", None if window_centres else m.fc.forward
    )  # the formula's product, not to be used
    mixed = m(x)
    assert_close(mixed, expected)
    for a, b in zip(*(torch.autograd.grad((y * weights).sum(), inputs) for y in (mixed, expected)), strict=True):
        assert_close(a, b)


def test_a_layer_in_place_of_the_read_out_is_asked(monkeypatch):
    """As adapters for fine-tuning do it."""

    class Adapted(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + x.sum(-1, keepdim=True)

    m, x = mixer(), image(6, 6)
    m.fc.__class__ = Adapted
    expected = m(x)
    monkeypatch.setattr(clustering, "on_cuda", lambda x: True)
    monkeypatch.setattr(clustering, "on_chip", lambda *_, **__: False)
    assert_close(m(x), expected)


HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("layer", ["fc", "norm"])
def test_hooks_on_the_read_out_are_called(layer, hook, monkeypatch):
    m, x, heard = mixer(), image(6, 6).requires_grad_(), []
    getattr(getattr(m, layer), f"register_{hook}")(lambda *_: heard.append(layer))
    monkeypatch.setattr(clustering, "on_cuda", lambda x: True)
    monkeypatch.setattr(clustering, "on_chip", lambda *_, **__: False)
    m(x).sum().backward()
    assert heard == [layer]


def test_the_norm_written_out_refuses_a_second_derivative():
    x = torch.randn(1, 4, 4, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(ImageNorm(3).written_out(x)[0].sum(), x, create_graph=True)


def test_only_an_exported_program_leaves():
    class Ask(torch.nn.Module):
        def forward(self, x):
            return x + leaves()

    x = torch.zeros(1)
    assert Ask()(x) == 0
    assert torch.compile(Ask(), backend="eager", fullgraph=True)(x) == 0
    for strict in (True, False):
        assert torch.export.export(Ask(), (x,), strict=strict).module()(x) == 1


# -- gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(8, 8), (7, 9)])
@pytest.mark.parametrize("geometries", GEOMETRIES)
def test_gradients_are_right(geometries, size):
    # no cell is a single patch: a distance of 0 is noise to finite differences
    m = mixer(geometries=geometries, windows=2, window_centres=9)
    assert torch.autograd.gradcheck(m, image(*size, batch=1).requires_grad_(), fast_mode=True, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("what", ["zero", "constant", "one patch"])
@pytest.mark.parametrize("geometries", GEOMETRIES)
def test_no_nan_where_features_vanish_or_coincide(geometries, what, dtype):
    """cos of a zero vector, clip of one, arcosh at 1 where a point is its centre."""
    m = mixer(shake=0.0, geometries=geometries).to(dtype)
    torch.nn.init.zeros_(m.project.bias)
    x = torch.zeros(1, 6, 6, 6, dtype=dtype) if what == "zero" else torch.ones(1, 6, 6, 6, dtype=dtype)
    if what == "one patch":
        x[:, 1:] = x[:, :, 1:] = 0
    x.requires_grad_()
    (m(x) * torch.randn(1, 6, 6, 6, dtype=dtype)).sum().backward()
    for gradient in (x.grad, *(p.grad for p in m.parameters())):
        assert gradient is not None
        assert gradient.isfinite().all()


def test_bf16_stays_near_fp32_and_windows_are_clustered_in_fp32():
    m, x = mixer(shake=0.2, head_width=8).float(), image(6, 9).float()
    exact = m(x)
    with torch.autocast("cpu", torch.bfloat16):
        rough, assignments = m.mix(x)
    assert assignments.window is not None
    assert rough.dtype == assignments.patch.dtype == torch.bfloat16
    assert assignments.window.dtype == torch.float32
    assert (rough - exact).norm() < 0.03 * exact.norm()
    assert (m.bfloat16()(x.bfloat16()) - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("geometries", GEOMETRIES)
def test_the_gradient_of_scales_under_autocast_is_near_that_in_fp32(geometries, scale):
    """It is a sum over all places: rounding to bf16 on the way must not drown it."""
    m = mixer(shake=0.0, geometries=geometries, head_width=8, patch_scale=scale, window_scale=scale).float()
    with torch.no_grad():
        m.project.weight.mul_(3)  # features as long as tangent vectors may be
    x, weights = image(6, 6, batch=8).float(), image(6, 6, batch=8, seed=2).float()

    def gradients():
        return torch.autograd.grad((m(x).float() * weights).sum(), (m.patch_scale, m.window_scale))

    exact = gradients()
    with torch.autocast("cpu", torch.bfloat16):
        rough = gradients()
    for a, b in zip(rough, exact, strict=True):
        assert a.dtype == torch.float32
        assert b.abs() > 0
        assert_close(a, b, rtol=0.25, atol=0.0)


# -- maps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(8, 12), (7, 7), (5, 9), (1, 3)])
def test_pool_is_adaptive_pooling(size):
    x = torch.randn(2, *size, 3, dtype=torch.float64)
    assert_close(pool(x, (4, 4)), F.adaptive_avg_pool2d(x.movedim(-1, 1), 4).movedim(1, -1))


def test_pool_counts_only_what_is_on_the_map():
    x = torch.randn(2, 5, 8, 3)
    on_map = pool(x, (4, 2), (12, 8))
    assert_close(on_map[:, 0], x[:, :3].unflatten(2, (2, 4)).mean((1, 3)))
    assert_close(on_map[:, 1], x[:, 3:5].unflatten(2, (2, 4)).mean((1, 3)))
    assert (on_map[:, 2:] == 0).all()


@pytest.mark.parametrize("windows", [(3, 3), (3, 2), (1, 4)])
@pytest.mark.parametrize("size", [(6, 9), (7, 7), (1, 2)])
def test_join_undoes_cut(size, windows):
    x = torch.randn(2, *size, 8)
    assert torch.equal(join(cut(x, windows, 4), windows, size), x)


@pytest.mark.parametrize("grid", [(3, 3), (3, 2), (1, 4)])
@pytest.mark.parametrize("size", [(6, 8), (7, 7), (5, 9)])
def test_a_window_gives_its_patches_what_is_its_own(size, grid):
    """Windows are ⌈H/rows⌉ x ⌈W/columns⌉ patches, cut off at the map's edge."""
    windows = torch.randn(2, *grid, 3)
    high, wide = (-(-length // count) for length, count in zip(size, grid, strict=True))
    whole, parts = spread(windows, size), cut(spread(windows, size), grid, 1).unflatten(1, grid)
    for row in range(size[0]):
        for column in range(size[1]):
            assert torch.equal(whole[:, row, column], windows[:, row // high, column // wide])
    assert parts.shape == (2, *grid, 1, high * wide, 3)
    shown = parts.abs().sum(-1)[:, :, :, 0] > 0  # the rest fills up
    assert torch.equal(parts[:, :, :, 0][shown], windows[:, :, :, None].expand(*shown.shape, 3)[shown])
    assert shown[0].sum() == size[0] * size[1]


def test_centres_lie_on_a_square_grid():
    with pytest.raises(UserError, match=r"patch_centres = 5.*use 4"):
        mixer(patch_centres=5)
    assert similarity(torch.zeros(2, 3), torch.ones(1, 3), torch.ones(1), Euclidean()).abs().max() == 0


def test_a_mixer_starts_without_a_preference_for_places_and_with_scales_of_one():
    m = mixer(shake=0.0)
    assert m.patch_scale == m.window_scale == 1
    assert not m.patch_bias.any()
    assert not m.window_bias.any()
    assert mixer(position_bias=False).patch_bias is mixer(position_bias=False).window_bias is None


def test_kernels_take_flat_soft_clusterings_of_few_and_narrow_centres():
    assert mixer(patch_centres=64, head_width=64)._fusible()
    assert not mixer(patch_centres=81)._fusible()
    assert not mixer(head_width=65)._fusible()  # features and values: 130 numbers a head
    assert not mixer(geometries="H+H")._fusible()
    assert not mixer(assignment="hard")._fusible()
