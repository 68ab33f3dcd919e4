"""HCFormer: its published sizes, every ablation, any input, and what carries it elsewhere (export, ONNX, compile)."""

import math
import os

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from horosphere.errors import UserError
from horosphere.models.hcformer import HCFORMER, HCFormer, HCFormerConfig, drop_path, hcformer_config
from horosphere.optim import param_groups

TINY = {
    "blocks": (1, 1, 2, 1),
    "dims": (8, 8, 12, 16),
    "heads": (2, 2, 2, 2),
    "head_width": 4,
    "mlp_ratios": (2, 2, 2, 2),
    "windows": (4, 4, 1, 1),
    "patch_centres": (4, 4, 4, 4),
    "window_centres": (4, 9, 1, 0),
    "image_size": 64,
    "num_classes": 5,
}
ABLATIONS = {
    "H window, E patch": {},
    "E+E": {"window_geometry": "euclidean"},
    "H+H": {"patch_geometry": "lorentz"},
    "κ = 0.1": {"curvature": 0.1},
    "κ = 10": {"curvature": 10.0},
    "shifted windows": {"hierarchy": "shifted", "blocks": (2, 2, 1, 1)},
    "49 window centres": {"window_centres": (49, 16, 1, 0)},
    "no position bias": {"position_bias": False},
    "hard": {"assignment": "hard"},
}
slow = pytest.mark.skipif(not os.environ.get("HOROSPHERE_SLOW"), reason="takes minutes; set HOROSPHERE_SLOW=1")


def tiny(seed: int = 0, shake: float = 0.0, **changes) -> HCFormer:
    """`shake` moves every parameter: with layer scales of 1e-5 the blocks would hardly be seen."""
    torch.manual_seed(seed)
    model = HCFormer(hcformer_config("hcformer-nano", **{**TINY, **changes})).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(shake * torch.randn_like(p))
    return model


def images(height: int = 64, width: int = 64, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


# -- published sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fewest", "most", "gmacs"),
    [
        ("hcformer-nano", 5.1, 5.35, 0.87),
        ("hcformer-tiny", 6.86, 7.14, 1.03),
        ("hcformer-small", 15.8, 16.4, 2.94),
        ("hcformer-medium", 33.0, 34.4, 6.4),
    ],
)
def test_sizes_are_the_published_ones(name, fewest, most, gmacs):
    """Published GMACs are those of layers with weights; the products of clustering come on top, 3 to 7 %."""
    with torch.device("meta"):
        model, x = HCFormer(hcformer_config(name)).eval(), torch.empty(1, 3, 224, 224)
    assert fewest < sum(p.numel() for p in model.parameters()) / 1e6 < most
    with FlopCounterMode(display=False) as counter:
        model(x)
    counts = counter.get_flop_counts()["Global"]
    clustering = counts.pop(torch.ops.aten.bmm)
    assert sum(counts.values()) / 2e9 == pytest.approx(gmacs, rel=0.01)
    assert 0.02 < clustering / sum(counts.values()) < 0.07


def test_cost_is_linear_in_the_number_of_patches():
    flops = {}
    for size in (64, 128, 256):
        with FlopCounterMode(display=False) as counter:
            tiny(num_classes=0)(images(size, size, batch=1))
        flops[size] = counter.get_total_flops()
    assert flops[256] - flops[128] == pytest.approx(
        4 * (flops[128] - flops[64]), rel=0.01
    )  # windows are a constant beside it


def test_the_small_images_model_has_windows_that_fit():
    config = HCFORMER["hcformer-nano-32"]
    for stride, windows, centres in zip(config.strides, config.windows, config.patch_centres, strict=True):
        size = config.image_size // stride
        assert size % windows == 0
        assert (size // windows) ** 2 > centres
    assert HCFormer(config)(torch.randn(1, 3, 32, 32)).shape == (1, 100)


# -- every form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_learns(name):
    """Its own way: no two give the same logits; every parameter has a gradient."""
    model = tiny(shake=0.1, **ABLATIONS[name]).double().train()
    y = model(images(64, 52).double())
    nn.functional.cross_entropy(y, torch.tensor([1, 3])).backward()
    for parameter, p in model.named_parameters():
        assert p.grad is not None, parameter
        assert p.grad.isfinite().all(), parameter
        assert p.grad.abs().max() > 0, parameter
    if name != "H window, E patch":
        assert (y - tiny(shake=0.1).double()(images(64, 52).double())).abs().max() > 1e-8


@pytest.mark.parametrize("size", [(64, 64), (65, 47), (33, 96), (5, 7), (1, 1)])
@pytest.mark.parametrize("name", ["H window, E patch", "H+H", "shifted windows"])
def test_any_input_size(name, size):
    model, x = tiny(shake=0.1, **ABLATIONS[name]), images(*size)
    y = model(x)
    assert y.shape == (2, 5)
    assert y.isfinite().all()
    assert_close(model(x[1:]), y[1:], atol=1e-5, rtol=1e-4)  # images do not see one another


def test_features_are_a_pyramid():
    model, x = tiny(shake=0.1), images(70, 64)
    maps = model.features(x)
    assert [tuple(m.shape) for m in maps] == [(2, 8, 18, 16), (2, 8, 9, 8), (2, 12, 5, 4), (2, 16, 3, 2)]
    assert all(torch.equal(a, b) for a, b in zip(model.features(x, 2), maps, strict=False))
    assert_close(model.forward_head(model.forward_features(x)), model(x))
    assert_close(model.forward_features(x), nn.functional.group_norm(maps[-1], 1, model.norm.weight, model.norm.bias))


@pytest.mark.parametrize("name", ["H window, E patch", "shifted windows", "hard"])
def test_cluster_maps_of_every_stage_block_and_head(name):
    model = tiny(shake=0.1, **ABLATIONS[name])
    maps = model.cluster_maps(images(60, 64))
    assert [len(stage) for stage in maps] == list(model.config.blocks)
    for stage, size in enumerate([(15, 16), (8, 8), (4, 4), (2, 2)]):
        for block in maps[stage]:
            assert block.patch.shape == (2, 2, 4, *size)
            assert_close(block.patch.sum(2), torch.ones(2, 2, *size))
            if name != "shifted windows" and stage < 2:
                assert block.window.shape == (2, 2, model.config.window_centres[stage], 4, 4)
            else:
                assert block.window is None


@pytest.mark.parametrize("window", ["euclidean", "lorentz"])
@pytest.mark.parametrize("patch", ["euclidean", "lorentz"])
def test_each_level_lives_in_the_geometry_it_is_given(patch, window):
    """Only a curved level feels another curvature; a flat one measures angles, which no scale of features changes."""
    geometries = {"patch_geometry": patch, "window_geometry": window}
    first = [tiny(shake=0.1, **geometries, curvature=c).cluster_maps(images())[0][0] for c in (1.0, 9.0)]
    assert torch.equal(first[0].patch, first[1].patch) == (patch == "euclidean")
    assert torch.equal(first[0].window, first[1].window) == (window == "euclidean")


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("head", [False, True])
def test_what_lies_behind_the_last_stage_asked_for_goes_and_the_rest_only_where_told(norm, head):
    model, x = tiny(), images()
    maps, kept = model.features(x), (model.norm, model.head)
    assert model.prune_intermediate_layers([0, 1], prune_norm=norm, prune_head=head) == [0, 1]
    assert len(model.stages) == len(model.downs) == 2
    assert_close(model.features(x), maps[:2])
    assert (model.norm is kept[0], model.head is kept[1]) == (not norm, not head)
    assert not norm or isinstance(model.norm, nn.Identity)
    assert not head or (isinstance(model.head, nn.Identity) and model.num_classes == 0)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_setting_reaches_every_block_of_its_stage(shifted):
    """All stages differ in all their numbers: where one read another's, few would notice."""
    own = {"blocks": (2, 3), "dims": (8, 12), "heads": (2, 3), "mlp_ratios": (2, 3), "windows": (4, 2)}
    own |= {"patch_centres": (4, 9), "window_centres": (9, 4)}
    common = {"head_width": 6, "image_size": 40, "stem_kernel": 7, "stem_stride": 2, "in_channels": 1}
    common |= {"curvature": 0.7, "patch_geometry": "lorentz", "assignment": "hard", "layer_scale": 0.3}
    common |= {"patch_scale": 7.0, "window_scale": 9.0}
    config = HCFormerConfig(**own, **common, hierarchy="shifted" if shifted else "levels")
    model = HCFormer(config)
    for stage, (down, blocks) in enumerate(zip(model.downs, model.stages, strict=True)):
        of = {name: numbers[stage] for name, numbers in own.items()}
        assert (down.in_channels, down.out_channels) == ((1, 8), (8, 12))[stage]
        assert (down.kernel_size[0], down.stride[0]) == ((7, 2), (3, 2))[stage]
        assert len(blocks) == of["blocks"]
        for index, block in enumerate(blocks):
            mixer, centres = block.mixer, 0 if shifted else of["window_centres"]
            assert (mixer.heads, mixer.windows, mixer.size) == (of["heads"], of["windows"], (20, 10)[stage])
            assert (mixer.side**2, mixer.window_side**2) == (of["patch_centres"], centres)
            assert mixer.project.out_features == 2 * 6 * of["heads"]
            assert (mixer.hard, mixer.shift) == (True, shifted and index % 2 == 1)
            for manifold in (mixer.patch_manifold, mixer.window_manifold):
                assert not manifold.flat
                assert manifold.c == 0.7
            assert mixer.patch_scale == 7
            assert mixer.window_scale is None if shifted else mixer.window_scale == 9
            assert block.mlp[0].out_features == of["dims"] * of["mlp_ratios"]
            for scale in (block.mixer_scale, block.mlp_scale):
                assert torch.equal(scale, torch.full((of["dims"],), 0.3))


def test_blocks_begin_as_in_the_paper_unless_told_otherwise():
    """α = 1 on both levels, LayerScale 1e-5, soft, matrices of std 0.02."""
    for config in HCFORMER.values():
        assert (config.patch_scale, config.window_scale, config.layer_scale) == (1, 1, 1e-5)
        assert (config.assignment, config.init) == ("soft", "narrow")


def test_whole_numbers_are_scales_too():
    model = tiny(layer_scale=1, patch_scale=10, window_scale=20)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_readings_are_means_over_the_blocks_of_a_stage_one_place_at_a_time():
    model, x = tiny(shake=0.5, blocks=(1, 2, 1, 1)), images(40, 56)
    read, maps = model.readings(x), model.cluster_maps(x)
    expected = {}
    came: dict[nn.Module, Tensor] = {}
    for block in model.blocks():
        block.register_forward_pre_hook(lambda block, inputs: came.update({block: inputs[0]}))
    model(x)
    for stage, (blocks, assigned) in enumerate(zip(model.stages, maps, strict=True), 1):
        of = {"patch_scale": [], "window_scale": [], "mixer_scale": [], "mlp_scale": []}
        of |= {"patch_centres": [], "window_centres": [], "patch_passed": [], "window_passed": []}
        for block, assignments in zip(blocks, assigned, strict=True):
            passed = block.mixer.passed(block.mixer_norm(came[block]))
            of["patch_passed"] += [float(passed[0])]
            of["window_passed"] += [] if assignments.window is None else [float(passed[1])]
            of["mixer_scale"] += [abs(scale) for scale in block.mixer_scale.tolist()]
            of["mlp_scale"] += [abs(scale) for scale in block.mlp_scale.tolist()]
            for level, shares in vars(assignments).items():
                if shares is not None:
                    of[f"{level}_scale"].append(getattr(block.mixer, f"{level}_scale").item())
                    of[f"{level}_centres"] += [spread_over(place) for place in shares.movedim(2, -1).flatten(0, -2)]
        expected |= {f"{name}_{stage}": sum(values) / len(values) for name, values in of.items() if values}
    assert read == pytest.approx(expected, rel=1e-4)
    assert "window_scale_2" in read
    assert "window_centres_3" not in read  # a global mean, nothing is clustered


def spread_over(shares: Tensor) -> float:
    return math.exp(-sum(share * math.log(share) for share in shares.tolist() if share > 0))


def test_position_biases_follow_the_picture_to_another_size():
    """A bias that prefers one centre on the left half does so on a map twice as large."""
    model = tiny()
    bias = model.stages[0][0].mixer.patch_bias
    with torch.no_grad():
        bias[:, 0, :, :8] = 20.0
    chosen = model.cluster_maps(images(128, 128))[0][0].patch[:, :, 0]
    assert (chosen[..., :15] > 0.99).all()
    assert (chosen[..., 17:] < 0.9).all()


@pytest.mark.parametrize("init", ["narrow", "wide"])
def test_every_matrix_starts_as_a_normal_of_the_width_asked_for(init):
    """std 0.02 as vision transformers have it, or torch's own 1/√(3·inputs), and no bias; a new classifier too."""
    model = HCFormer(hcformer_config("hcformer-nano-32", init=init))
    model.reset_classifier(7)
    for module in (m for m in model.modules() if isinstance(m, nn.Linear)):
        std = 0.02 if init == "narrow" else nn.Linear(module.in_features, 1000).weight.std().item()
        assert module.weight.std().item() == pytest.approx(std, rel=0.1)
        assert not module.bias.any()
    assert model.get_classifier().out_features == model(torch.rand(1, 3, 32, 32)).shape[1] == 7


def test_only_matrices_and_kernels_decay():
    """Not α, which would be drawn to even shares, nor LayerScale, norms and biases."""
    model = tiny()
    of = {id(p): name for name, p in model.named_parameters()}
    decayed = {of[id(p)] for group in param_groups(model, 0.05) if group["weight_decay"] for p in group["params"]}
    assert decayed == {name for name, p in model.named_parameters() if name.endswith("weight") and p.ndim > 1}
    assert len(of) > 2 * len(decayed)


def test_layer_scale_starts_near_the_identity():
    plain = tiny(layer_scale=0.0)
    x = images()
    y = x.permute(0, 2, 3, 1)
    for down in plain.downs:
        y = down(y)
    assert_close(plain.features(x)[-1], y.permute(0, 3, 1, 2))
    difference = (tiny(layer_scale=1e-5).features(x)[-1] - plain.features(x)[-1]).abs().max()
    assert 0 < difference < 1e-3


def test_drop_path_drops_whole_images_and_keeps_the_mean():
    torch.manual_seed(0)
    x = torch.ones(4000, 2, 3)
    y = drop_path(x, torch.tensor(0.25))
    assert y.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (y.flatten(1).amin(1) == y.flatten(1).amax(1)).all()
    assert y.mean().item() == pytest.approx(1, abs=0.03)
    assert drop_path(x, None) is x


def test_rates_of_dropping_grow_from_the_first_block_to_the_last():
    model, seen = tiny(drop_path=0.4).train(), []
    for stage in model.stages:
        for block in stage:
            block.register_forward_pre_hook(lambda _, inputs: seen.append(float(inputs[1])))
    model(images())
    assert seen == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])


def test_paths_are_dropped_in_training_only():
    model, x = tiny(shake=0.3, drop_path=0.9), images()
    assert_close(model(x), tiny(shake=0.3)(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_checkpointing_changes_no_gradient():
    gradients = []
    for enable in (False, True):
        model = tiny(shake=0.1).train()
        model.set_grad_checkpointing(enable)
        model(images()).square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


# -- elsewhere --------------------------------------------------------------------------------------------------------


ONE_STAGE = {  # clustered windows on a map they do not fit: all there is to trace, but for a stage of means
    "blocks": (1,),
    "dims": (8,),
    "heads": (2,),
    "mlp_ratios": (2,),
    "windows": (4,),
    "patch_centres": (4,),
    "window_centres": (4,),
}
SIZES = [ONE_STAGE, pytest.param({}, marks=slow)]


@pytest.fixture(scope="module", params=SIZES, ids=["one stage", "all stages"])
def exported(request) -> tuple[HCFormer, torch.export.ExportedProgram]:
    model, batch = tiny(shake=0.1, **request.param), torch.export.Dim("batch", min=1, max=64)
    return model, torch.export.export(model, (images(64, 60),), dynamic_shapes=({0: batch},))


def test_export_with_any_batch(exported):
    model, program = exported
    x = images(64, 60, batch=3)
    assert_close(program.module()(x), model(x), atol=1e-5, rtol=1e-4)


def test_onnx_runs_the_same(exported, tmp_path):
    pytest.importorskip("onnxscript", reason="ONNX export needs onnxscript")
    runtime = pytest.importorskip("onnxruntime", reason="running ONNX needs onnxruntime")
    model, program = exported
    torch.onnx.export(program, dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    session, x = (
        runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"]),
        images(64, 60, batch=3),
    )
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert_close(torch.from_numpy(y), model(x).detach(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=slow)])
@pytest.mark.parametrize("sizes", SIZES, ids=["one stage", "all stages"])
def test_compiles_as_one_graph(sizes, backend):
    torch._dynamo.reset()
    model, twin = tiny(shake=0.1, **sizes).train(), tiny(shake=0.1, **sizes).train()
    compiled = torch.compile(twin, fullgraph=True, backend=backend)
    for m in (model, compiled):
        m(images(64, 60)).square().sum().backward()
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert_close(p.grad, q.grad, atol=1e-4 * p.grad.abs().max().item() + 1e-6, rtol=1e-3, msg=name)


# -- users ------------------------------------------------------------------------------------------------------------


def test_mistakes_are_named():
    with pytest.raises(UserError, match="did you mean hcformer-nano"):
        hcformer_config("hcformer-nanno")
    with pytest.raises(UserError, match="did you mean drop_path"):
        hcformer_config("hcformer-nano", drop_paths=0.1)
    with pytest.raises(UserError, match="window_geometry=poincare: choose from euclidean, lorentz"):
        hcformer_config("hcformer-nano", window_geometry="poincare")
    with pytest.raises(UserError, match=r"window_centres = 5.*use 4"):
        hcformer_config("hcformer-nano", window_centres=(5, 4, 1, 0))
    with pytest.raises(UserError, match="3 numbers for 4 stages"):
        hcformer_config("hcformer-nano", dims=(8, 8, 8))
    with pytest.raises(UserError, match=r"\(batch, 3, height, width\)"):
        tiny()(torch.randn(1, 1, 64, 64))
    with pytest.raises(UserError, match=r"stages \[4\]"):
        tiny().forward_intermediates(images(), [4])


def test_lists_of_a_file_are_as_good_as_tuples():
    assert (
        hcformer_config("hcformer-nano", **{k: list(v) if isinstance(v, tuple) else v for k, v in TINY.items()})
        == tiny().config
    )
