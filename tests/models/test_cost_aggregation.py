"""The cost-aggregation head: no weight belongs to a class, and each step is its formula."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.cost_aggregation import (
    CostAggregation,
    CostAggregationConfig,
    GuidedAttention,
    SpatialAggregation,
    Upsampling,
    cost_volume,
    open_vocabulary_loss,
)

SMALL = {"channels": 8, "heads": 2, "window": 3, "guide": 4, "text_guide": 4}
GUIDED = [{}, {"guide": 0}, {"text_guide": 0}, {"guide": 0, "text_guide": 0}, {"rounds": 1}, {"window": 20}]


def head(width=6, **changes):
    torch.manual_seed(0)
    return CostAggregation(width, CostAggregationConfig(**{**SMALL, **changes})).double()


def inputs(count=2, classes=5, width=6, height=4, across=5):
    torch.manual_seed(1)
    return (
        torch.randn(count, width, height, across).double(),
        torch.randn(classes, width).double(),
        torch.randn(count, 3, 8 * height, 8 * across).double(),
    )


# -- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", GUIDED)
def test_other_orders_of_classes_give_the_same_answers_in_that_order(changes):
    patches, texts, pictures = inputs()
    network, order = head(**changes), torch.tensor([3, 0, 4, 2, 1])
    assert_close(network(patches, texts[order], pictures), network(patches, texts, pictures)[:, order])


def test_few_channels_are_enough():
    """Each doubling of the map halves them, but one stays."""
    answer = head(channels=1, heads=1)(*inputs())
    assert answer.shape == (2, 5, 16, 20)
    assert answer.std() > 0


@pytest.mark.parametrize("classes", [1, 2, 9])
def test_any_number_of_classes_has_answers(classes):
    patches, texts, pictures = inputs(classes=classes)
    answer = head()(patches, texts, pictures)
    assert answer.shape == (2, classes, 16, 20)
    assert answer.isfinite().all()


def test_pictures_do_not_see_each_other_and_lengths_of_vectors_say_nothing_to_the_cost():
    patches, texts, pictures = inputs()
    network = head(guide=0, text_guide=0)
    whole = network(patches, texts, pictures)
    assert_close(network(patches[:1], texts, pictures[:1]), whole[:1])
    assert_close(network(7 * patches, 3 * texts, pictures), whole)


@pytest.mark.parametrize("changes", GUIDED)
def test_gradients_reach_texts_patches_and_every_weight(changes):
    patches, texts, pictures = inputs()
    network = head(**changes)
    answer = network(patches.requires_grad_(), texts.requires_grad_(), pictures)
    open_vocabulary_loss(answer, torch.randint(0, 5, (2, 16, 20)), ignored=-1).backward()
    assert patches.grad.abs().sum(1).min() > 0
    assert texts.grad.abs().sum(1).min() > 0
    assert {name for name, p in network.named_parameters() if p.grad is None} == set()


def test_a_class_that_is_added_changes_others_only_by_attention_over_classes():
    patches, texts, pictures = inputs()
    network = head(past=0.0)
    for layer in network.classes:  # without it, each class is on its own
        torch.nn.init.zeros_(layer.attention.out.weight)
        torch.nn.init.zeros_(layer.attention.out.bias)
    assert_close(network(patches, texts[:3], pictures), network(patches, texts, pictures)[:, :3])


def test_the_picture_says_something_where_it_is_a_guide():
    patches, texts, pictures = inputs()
    changed = [head(guide=g)(patches, texts, pictures) - head(guide=g)(patches, texts, -pictures) for g in (4, 0)]
    assert changed[0].abs().max() > 1e-4
    assert changed[1].abs().max() == 0


# -- slow references --------------------------------------------------------------------------------------------------


def test_the_cost_is_a_cosine_at_each_place_and_class():
    patches, texts, _ = inputs()
    cost = cost_volume(patches, texts)
    for n in range(2):
        for k in range(5):
            for y in range(4):
                for x in range(5):
                    a, b = patches[n, :, y, x], texts[k]
                    assert cost[n, k, y, x].item() == pytest.approx((a @ b / a.norm() / b.norm()).item())


def attended(block, x, guide, among):
    """What `block` makes of places (T, C) with guidance (T, G), each of which looks at those `among` them."""
    channels, size = x.shape[1], x.shape[1] // block.heads
    normed = block.norm(x)
    weight = torch.cat([block.qkv.weight[: 2 * channels], block.guide.weight], 1)  # of [x; g]
    both = torch.cat([normed, guide], 1) @ weight.T + block.qkv.bias[: 2 * channels]
    value = normed @ block.qkv.weight[2 * channels :].T + block.qkv.bias[2 * channels :]
    rows = []
    for i in range(len(x)):
        parts = []
        for h in range(block.heads):
            cut = slice(h * size, (h + 1) * size)
            query, keys = both[i, :channels][cut], both[among[i], channels:][:, cut]
            parts.append(torch.softmax(keys @ query / size**0.5, 0) @ value[among[i]][:, cut])
        rows.append(torch.cat(parts))
    x = x + block.out(torch.stack(rows))
    return x + block.mlp(block.mlp_norm(x))


@pytest.mark.parametrize("shifted", [False, True])
def test_spatial_aggregation_is_attention_within_windows(shifted):
    torch.manual_seed(0)
    config = CostAggregationConfig(**{**SMALL, "window": 4})
    layer, shift = SpatialAggregation(config, shifted).double(), 2 * shifted
    x, guide = torch.randn(2, 3, 5, 6, 8).double(), torch.randn(2, 1, 5, 6, 4).double()
    answer = layer(x, guide)
    window = [((y + shift) // 4, (z + shift) // 4) for y in range(5) for z in range(6)]
    among = [[j for j, other in enumerate(window) if other == own] for own in window]
    for n in range(2):
        for k in range(3):
            slow = attended(layer.attention, x[n, k].flatten(0, 1), guide[n, 0].flatten(0, 1), among)
            assert_close(answer[n, k].flatten(0, 1), slow)


def test_class_aggregation_is_attention_over_classes_at_each_place():
    torch.manual_seed(0)
    layer = head().classes[0]
    x, guide = torch.randn(2, 5, 3, 4, 8).double(), torch.randn(5, 4).double()
    answer = layer(x, guide)
    for n in range(2):
        for y in range(3):
            for z in range(4):
                slow = attended(layer.attention, x[n, :, y, z], guide, [list(range(5))] * 5)
                assert_close(answer[n, :, y, z], slow)


def test_the_decoder_convolves_costs_and_pictures_together():
    torch.manual_seed(0)
    stage = Upsampling(8, 4, 3).double()
    x, guide = torch.randn(2, 5, 8, 3, 4).double(), torch.randn(2, 3, 6, 8).double()
    weight = torch.cat([stage.cost.weight, stage.guide.weight], 1)
    for n in range(2):
        for k in range(5):
            up = F.interpolate(x[n, k][None], scale_factor=2.0, mode="bilinear", align_corners=False)
            both = F.gelu(F.conv2d(torch.cat([up, guide[n : n + 1]], 1), weight, stage.cost.bias, padding=1))
            assert_close(stage(x, guide)[n, k], F.gelu(stage.mix(both))[0])


def test_the_loss_is_the_cross_entropy_of_each_class_and_ignored_pixels_have_none():
    torch.manual_seed(0)
    logits, classes = torch.randn(2, 3, 4, 5).double(), torch.randint(-1, 3, (2, 4, 5))
    total = 0.0
    for n, k, y, x in torch.cartesian_prod(*map(torch.arange, logits.shape)):
        logit = logits[n, k, y, x]
        if classes[n, y, x] != -1:
            p = torch.sigmoid(logit if classes[n, y, x] == k else -logit)
            total -= p.log().item()
    assert open_vocabulary_loss(logits, classes, -1).item() == pytest.approx(total / logits.numel(), rel=1e-5)
    assert open_vocabulary_loss(logits, torch.full_like(classes, -1), -1) == 0


def test_heads_that_do_not_divide_channels_are_named():
    with pytest.raises(UserError, match="heads=3 does not divide channels=8"):
        GuidedAttention(8, 0, 3)


# -- an open vocabulary -----------------------------------------------------------------------------------------------

COLOURS = {
    "red": (1, 0, 0),
    "green": (0, 1, 0),
    "blue": (0, 0, 1),
    "yellow": (1, 1, 0),
    "cyan": (0, 1, 1),
    "pink": (1, 0, 1),
}


def coloured(count, names, seed):
    """Pictures in two colours, with an edge at any row.   -> (N, 3, 32, 32) from 0 to 1, classes (N, 32, 32)"""
    random = torch.Generator().manual_seed(seed)
    table = torch.tensor([COLOURS[name] for name in names]).float()
    classes = torch.empty(count, 32, 32, dtype=torch.long)
    for picture in classes:
        above, below = torch.randperm(len(names), generator=random)[:2]
        edge = int(torch.randint(4, 28, (), generator=random))
        picture[:edge], picture[edge:] = above, below
    return table[classes].movedim(-1, 1), classes


def test_what_was_learned_on_some_colours_holds_for_others():
    """Patches are mean colours, texts are colours: two that nobody taught are told apart."""
    taught, others = ["red", "green", "yellow", "cyan"], ["blue", "pink"]
    torch.manual_seed(0)
    network = CostAggregation(3, CostAggregationConfig(channels=16, heads=2, guide=8, text_guide=0))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)

    def answer(pictures, names):
        return F.interpolate(network(F.avg_pool2d(pictures, 8), texts(names), pictures), (32, 32), mode="bilinear")

    def texts(names):
        return torch.tensor([COLOURS[name] for name in names]).float()

    for step in range(60):
        pictures, classes = coloured(8, taught, step)
        loss = open_vocabulary_loss(answer(pictures, taught), classes, ignored=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pictures, classes = coloured(64, others, 1000)
    with torch.no_grad():
        right = (answer(pictures, others).argmax(1) == classes).float().mean()
    assert right > 0.85  # by chance: 0.5
