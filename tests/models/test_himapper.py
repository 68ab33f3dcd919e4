"""The tree is the mixture of its leaves, inference is deterministic, every parameter learns, costs are as published."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.himapper import (
    Attention,
    HiMapper,
    HiMapperConfig,
    Layer,
    Mapper,
    NodeSpace,
    Tree,
    mixture_moments,
    overhead,
    tree_levels,
    tree_parents,
)
from tests.models.tiny_himapper import SIZES, SMALL, TinyNet, images, tiny

ABLATIONS = [
    {},
    {"geometry": "euclidean"},
    {"probabilistic": False},
    {"leaves": 4, "levels": 3},
    {"leaves": 6, "levels": 2},
]


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


# -- attention --------------------------------------------------------------------------------------------------------


def torchs(ours: Attention) -> nn.MultiheadAttention:
    """torch's attention with the same weights."""
    width = ours.out.in_features
    theirs = nn.MultiheadAttention(width, ours.heads, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.key_value.weight)))
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(ours.out.bias)
    return theirs


def shaken(module: nn.Module) -> nn.Module:
    """No two norms are alike, and nothing is at its start."""
    with torch.no_grad():
        for p in module.parameters():
            p += 0.5 * torch.randn_like(p)
    return module


def test_attention_is_torchs():
    ours = shaken(Attention(12, 3))
    x, memory, mask = torch.randn(2, 4, 12), torch.randn(2, 7, 12), torch.rand(4, 7) < 0.6
    mask[:, 0] = True
    expected, weights = torchs(ours)(x, memory, memory)
    assert_close(ours(x, memory), expected)
    assert_close(ours.weights(x, memory), weights)
    assert_close(ours(x, memory, mask), torchs(ours)(x, memory, memory, attn_mask=~mask)[0])
    sharp = Attention(12, 3, scale=2.0)
    sharp.load_state_dict(ours.state_dict())
    with torch.no_grad():
        ours.query.weight *= 2.0 * 4**0.5  # torch divides by the root of a head's width
    assert_close(sharp(x, memory), torchs(ours)(x, memory, memory)[0])


def test_a_layer_is_its_formula():
    layer = shaken(Layer(12, 3))
    x, memory, beside, mask = torch.randn(2, 4, 12), torch.randn(2, 7, 12), torch.randn(2, 2, 12), torch.eye(4).bool()
    cross, own = torchs(layer.cross_attention), torchs(layer.self_attention)
    y = x + cross(layer.norms[0](x), memory, memory)[0]
    assert_close(layer.attention(x, memory), cross(layer.norms[0](x), memory, memory)[1])

    def rest(seen, **more):
        z = y + own(layer.norms[1](y), seen, seen, **more)[0]
        return z + layer.mlp(layer.norms[2](z))

    assert_close(layer(x, memory), rest(layer.norms[1](y)))
    assert_close(layer(x, memory, mask=mask), rest(layer.norms[1](y), attn_mask=~mask))
    assert_close(layer(x, memory, beside), rest(torch.cat((layer.norms[1](y), beside), 1)))


# -- the tree ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [SIZES, (4, 2, 1), (6, 3)])
def test_every_two_nodes_share_a_parent_one_level_up(sizes):
    parents, levels = tree_parents(sizes), tree_levels(sizes)
    assert torch.bincount(levels).tolist() == list(sizes)
    assert (parents < 0).tolist() == (levels == len(sizes) - 1).tolist()
    children = parents >= 0
    assert (levels[parents[children]] == levels[children] + 1).all()
    assert torch.bincount(parents[children], minlength=sum(sizes))[sizes[0] :].tolist() == [2] * sum(sizes[1:])
    assert (parents[children].diff() >= 0).all()  # siblings side by side


def test_moments_of_a_mixture_are_those_of_its_samples():
    mean, variance = torch.randn(8, 3), torch.rand(8, 3) + 0.1
    count = 50_000
    child = torch.arange(8).reshape(4, 2).gather(1, torch.randint(2, (4, count)))
    draws = mean[child] + variance[child].sqrt() * torch.randn(4, count, 3)
    expected_mean, expected_variance = mixture_moments(mean, variance)
    assert_close(draws.mean(1), expected_mean, atol=0.03, rtol=0)
    assert_close(draws.var(1), expected_variance, atol=0.05, rtol=0.02)


def test_draws_of_a_node_have_its_moments_at_every_level():
    tree = Tree(SIZES, 3, probabilistic=True)
    nn.init.normal_(tree.log_variance, std=0.5)
    nn.init.normal_(tree.mean)
    draws = tree.sample(20_000).unflatten(1, (len(SIZES), SIZES[0])).unbind(1)
    for level, size, (mean, variance) in zip(draws, SIZES, tree.moments(), strict=True):
        assert level.unflatten(1, (size, -1)).shape[2] == SIZES[0] // size  # 2^(l-1) draws a node
        of_node = level.unflatten(1, (size, -1)).transpose(1, 2).flatten(0, 1)
        assert_close(of_node.mean(0), mean, atol=0.06, rtol=0)
        assert_close(of_node.var(0), variance, atol=0.1, rtol=0.06)


def test_a_parent_is_the_mixture_of_its_children_and_not_a_gaussian_in_between():
    tree = Tree((4, 2), 3, probabilistic=True)
    nn.init.constant_(tree.log_variance, -60.0)
    assert_close(tree.sample(1)[0, 4:], tree.mean)  # one draw at each child, and none where there is no child


def test_gradients_reach_every_leaf_through_draws():
    tree = Tree(SIZES, 3, probabilistic=True)
    (tree.sample(2)[:, -SIZES[0] :].square().sum()).backward()  # the top level alone
    assert (tree.mean.grad != 0).all()
    assert (tree.log_variance.grad != 0).all()


def test_leaves_start_in_sibling_pairs_that_draws_tell_apart():
    tree = Tree(SIZES, 64, probabilistic=True)
    distance = torch.cdist(tree.mean, tree.mean).detach().fill_diagonal_(math.inf)
    assert distance.argmin(1).tolist() == [k ^ 1 for k in range(SIZES[0])]
    draws = tree.sample(50)[:, : SIZES[0]].detach()
    nearest = torch.cdist(draws, tree.mean.detach().expand(50, -1, -1)).argmin(-1)
    assert (nearest // 2 == torch.arange(SIZES[0]) // 2).all()


# -- the space of nodes -----------------------------------------------------------------------------------------------


def test_curvature_starts_at_one_and_stays_between_a_tenth_and_ten():
    space = NodeSpace()
    assert space.c.item() == 1
    for log_ratio, c in [(-1e3, 0.1), (1e3, 10.0)]:
        nn.init.constant_(space.log_ratio, log_ratio)
        assert space.c.item() == pytest.approx(c, rel=1e-5)


@pytest.mark.parametrize("log_ratio", [-5.0, 0.0, 5.0])
def test_points_lie_on_the_hyperboloid_as_far_out_as_they_were_told(log_ratio):
    model = tiny().eval().double()
    nn.init.constant_(model.mapper.manifold.log_ratio, log_ratio)
    nodes = torch.randn(2, 14, TinyNet.width, dtype=torch.float64)
    points, manifold = model.mapper.points(nodes), model.mapper.manifold
    product = points.square().sum(-1, keepdim=True) - manifold.time(points).square()
    assert_close(product, (-1 / manifold.c).expand_as(product))
    assert_close(manifold.dist0(points), model.mapper.to_tangent(nodes).norm(dim=-1))


def test_points_are_fp32_under_autocast_and_the_loss_is_finite():
    model = tiny().train()
    with torch.autocast("cpu", torch.bfloat16):
        logits, loss = model(images())
        assert model.mapper.points(torch.randn(1, 14, TinyNet.width)).dtype == torch.float32
    assert logits.isfinite().all()
    assert loss.total.isfinite()
    loss.total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# -- the model --------------------------------------------------------------------------------------------------------


def test_inference_is_deterministic_and_training_is_not():
    model, x = tiny(), images()
    model.eval()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x)[0], model(x)[0])
    vectors = tiny(probabilistic=False).train()
    assert torch.equal(vectors(x)[0], vectors(x)[0])


def test_each_image_is_its_own():
    model, x = tiny().eval(), images(3, 3, 16, 16)
    assert_close(model(x[1:2]), model(x)[1:2])


def test_equal_queries_of_a_level_are_one():
    """Why inference asks once a node: N queries a level, 2^(l-1) of them equal, would find the same."""
    mapper = tiny().mapper
    queries, places = mapper.tree.means(), torch.randn(2, 12, TinyNet.map_width)
    copies = 2**mapper.levels
    many = mapper.decomposition(
        queries.repeat_interleave(copies, 0)[None], mapper.levels.repeat_interleave(copies), places
    )
    once = mapper.decomposition(queries[None], mapper.levels, places)
    assert_close(many, once.repeat_interleave(copies, 1))


def test_levels_do_not_see_each_other():
    mapper = tiny().mapper
    queries, places = mapper.tree.means(), torch.randn(2, 12, TinyNet.map_width)
    changed = torch.where((mapper.levels == 1)[:, None], queries + 1, queries)
    before, after = (mapper.decomposition(q[None], mapper.levels, places) for q in (queries, changed))
    same = (before == after).all(-1).all(0)
    assert same.tolist() == (mapper.levels != 1).tolist()


def test_draws_without_spread_are_means():
    """Training at zero variance, and with leaves alike below every top node, is inference."""
    model, x = tiny().train(), images()
    with torch.no_grad():
        model.mapper.tree.log_variance.fill_(-80.0)
        model.mapper.tree.mean.copy_(model.mapper.tree.mean[::4].repeat_interleave(4, 0))
    assert_close(model(x)[0], model.eval()(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", ABLATIONS, ids=str)
def test_every_parameter_learns_and_no_gradient_is_nan(changes):
    model = tiny(**changes).train()
    logits, loss = model(images())
    (F.cross_entropy(logits, torch.tensor([0, 1])) + loss.total).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.any() or model.config.sizes[-1] == 1, name  # of a lone node there is nothing to choose


@pytest.mark.parametrize("geometry", ["lorentz", "euclidean"])
def test_no_gradient_is_nan_at_zero(geometry):
    model = tiny(geometry=geometry).train()
    for p in (*model.backbone.parameters(), model.mapper.to_tangent.weight, model.mapper.tree.mean):
        nn.init.zeros_(p)  # a map and a vector of zeros, all nodes at the origin
    logits, loss = model(torch.zeros(2, 3, 16, 16))
    (F.cross_entropy(logits, torch.tensor([0, 1])) + loss.total).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_it_learns():
    model, x, y = tiny(awake=False).train(), images(8, 3, 16, 16), torch.arange(8) % 5
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        logits, loss = model(x)
        whole = F.cross_entropy(logits, y) + loss.total
        optimizer.zero_grad()
        whole.backward()
        optimizer.step()
        losses.append(whole.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (37, 53)])
@pytest.mark.parametrize("batch", [1, 2])
def test_any_size_and_a_batch_of_one(size, batch):
    model = tiny().train()
    assert model(images(batch, 3, *size))[0].shape == (batch, 5)
    assert model.eval()(images(batch, 3, *size)).shape == (batch, 5)


def test_hierarchy_is_a_tree_with_a_picture_for_each_node():
    model, x = tiny().eval(), images(2, 3, 16, 24)
    tree = model.hierarchy(x)
    assert tree.attention.shape == (2, 14, 4, 6)
    assert_close(tree.attention.sum((2, 3)), torch.ones(2, 14))
    assert tree.points.shape == (2, 14, 16)
    assert tree.parents.tolist() == [8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, -1, -1]
    assert tree.levels.tolist() == [0] * 8 + [1] * 4 + [2] * 2
    assert tree.manifold is model.mapper.manifold
    assert not tree.points.requires_grad
    moved = model.hierarchy(x.roll(4, 3)).attention  # one place to the right: attention has no notion of place
    assert_close(moved, tree.attention.roll(1, 3), atol=1e-5, rtol=1e-4)
    with pytest.raises(UserError, match=r"eval\(\)"):
        model.train().hierarchy(x)


def test_state_comes_back():
    model, other, x = tiny().eval(), tiny().eval(), images()
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(x), other(x))
    pointers = [p.data_ptr() for p in model.state_dict().values()]
    assert len(set(pointers)) == len(pointers)  # safetensors stores no tensor twice


def test_what_timm_users_expect():
    model = tiny().eval()
    model.reset_classifier(7)
    assert model(images()).shape == (2, 7)
    assert model.no_weight_decay() <= {name for name, _ in model.named_parameters()}
    assert {"mapper.tree.mean"} <= model.no_weight_decay()
    assert tiny(probabilistic=False).no_weight_decay() == {"mapper.tree.mean"}


def test_inference_compiles_and_exports_whole():
    model, x = tiny(leaves=4, levels=2).eval(), images()
    torch.compiler.reset()
    assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), model(x))
    exported = torch.export.export(
        model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},)
    ).module()
    for batch in (1, 5):
        x = images(batch, 3, 16, 24)
        assert_close(exported(x), model(x))


def test_training_step_compiles_whole():
    model, x = tiny(leaves=4, levels=2, probabilistic=False).train(), images()  # no draws, so that both see the same
    torch.compiler.reset()
    logits, loss = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    expected, expected_loss = model(x)
    assert_close(logits, expected)
    assert_close(loss.total, expected_loss.total)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"leaves": 30}, "multiple of 8"),
        ({"leaves": 4}, "multiple of 8"),
        ({"levels": 1}, "levels=1: it goes from 2 to 20"),
        ({"geometry": "spherical"}, "choose from lorentz, euclidean"),
        ({"heads": 3}, "multiple"),
    ],
)
def test_impossible_sizes_are_named(changes, words):
    with pytest.raises(UserError, match=words):
        HiMapperConfig(**changes)


def test_mapper_alone_enriches_the_vector_of_any_map():
    mapper = Mapper(6, 10, HiMapperConfig(**SMALL))
    for training in (True, False):
        v, loss = mapper.train(training)(torch.randn(2, 6, 3, 5), torch.randn(2, 10))
        assert v.shape == (2, 10)
        assert (loss is not None) is training


# -- overhead ---------------------------------------------------------------------------------------------------------

NAMED = [
    ("resnet50", 224),
    ("efficientnet_b4", 380),
    ("deit_tiny_patch16_224", 224),
    ("deit_small_patch16_224", 224),
    ("deit_base_patch16_224", 224),
    ("swin_tiny_patch4_window7_224", 224),
    ("swin_small_patch4_window7_224", 224),
]


@pytest.mark.parametrize(("name", "size"), NAMED)
def test_overhead_on_the_papers_backbones(name, size):
    """Parameters as published, 1.5 to 3.3 million. One query a node needs fewer GMACs than published, 0.1 to 0.2."""
    pytest.importorskip("timm")
    with torch.device("meta"):  # counts need no numbers
        model = HiMapper(f"timm:{name}", 1000)
    cost = overhead(model, size)
    assert 1.5 <= round(cost.parameters / 1e6, 1) <= 3.3
    assert 0.03 < cost.gmacs < 0.2


def test_overhead_is_the_plug_ins_alone_and_changes_nothing():
    model = tiny().train()
    model.backbone.eval()
    state, modes = {k: v.clone() for k, v in model.state_dict().items()}, [m.training for m in model.modules()]
    cost = overhead(model, (16, 24))
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    parameters = sum(p.numel() for p in model.parameters())
    assert cost.parameters == parameters - sum(
        p.numel() for p in (*model.backbone.parameters(), *model.head.parameters())
    )
    nodes, places, w = 14, 24, 16  # products by hand, in multiply-adds
    layer = 14 * w * w
    find = (
        places * (6 + 2 * w) * w
        + nodes * 10 * w
        + nodes * layer
        + 2 * nodes * places * w
        + 2 * nodes * nodes * w
        + nodes * w * 10
    )
    encode = (
        nodes * 10 * w
        + 10 * w * 2
        + 3 * (10 * w * w + 2 * w * w + 2 * w * w)
        + nodes * 4 * w * w
        + (4 * nodes + 2 * 3) * w
    )
    assert cost.gmacs * 1e9 == pytest.approx(find + encode, rel=0.03)
    assert overhead(model, (32, 24)).gmacs > cost.gmacs
