"""SiamFC: shapes, places and signs; the peak is where the template was planted; a box is followed."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from horosphere.data.scenes import moving_patch
from horosphere.errors import UserError
from horosphere.evaluate.tracks import mean_overlap
from horosphere.models.siamese import (
    PixelMatcher,
    SiamFC,
    SiamFCConfig,
    balanced_loss,
    look_at,
    peak,
    search_around,
    signs,
    track_box,
)

CONFIG = SiamFCConfig(template=32, search=64, width=4)


def network():
    torch.manual_seed(0)
    return SiamFC(CONFIG).eval()


def noise(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def planted(dx, dy):
    """A search with a template of its own at this shift from the middle."""
    search = noise(1, 3, 64, 64)
    left, top = 16 + dx, 16 + dy
    return search[..., top : top + 32, left : left + 32], search


@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (2, 0), (0, -6), (-16, 16), (10, 4)])
@pytest.mark.parametrize("matcher", [network(), PixelMatcher(CONFIG)], ids=["network", "pixels"])
@torch.no_grad()
def test_the_peak_is_at_the_planted_place(matcher, dx, dy):
    """Without learning too: what a network says of a part of a picture does not depend on what is around it."""
    assert peak(matcher(*planted(dx, dy)), matcher.stride).tolist() == [[dx, dy]]


@torch.no_grad()
def test_an_answer_is_the_product_of_what_is_seen_of_template_and_window():
    model, (template, search) = network(), planted(2, 0)
    answers = model(template, search)
    assert answers.shape == (1, 17, 17)
    for row, column in ((0, 0), (3, 7), (16, 16)):
        window = search[..., 2 * row : 2 * row + 32, 2 * column : 2 * column + 32]
        again = model(template, window)  # of the same size as the template: one place
        assert again.shape == (1, 1, 1)
        torch.testing.assert_close(again[0, 0, 0], answers[0, row, column], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_rows_do_not_see_each_other():
    model = network()
    template, search = noise(3, 3, 32, 32), noise(3, 3, 64, 64, seed=1)
    one_by_one = [model(template[i : i + 1], search[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(model(template, search), torch.cat(one_by_one), rtol=1e-4, atol=1e-5)


def test_signs_are_positive_around_the_shift():
    shifts = torch.tensor([[4.0, -10.0], [0.3, 1.2]])
    map_of = signs(shifts, CONFIG, radius=4.0)
    assert map_of.shape == (2, 17, 17)
    for row, (x, y) in enumerate(shifts.tolist()):
        for (i, j), sign in np.ndenumerate(map_of[row].numpy()):
            near = np.hypot(2 * (j - 8) - x, 2 * (i - 8) - y) <= 4
            assert sign == (1 if near else -1)
    assert peak(signs(shifts[:1], CONFIG, radius=1.0), stride=2).tolist() == [[4.0, -10.0]]


def test_the_loss_is_logistic_and_both_signs_weigh_the_same():
    logits, given = torch.randn(4, 5, 5, dtype=torch.float64), torch.ones(4, 5, 5, dtype=torch.float64)
    given[:, 1:] = -1
    terms = F.binary_cross_entropy_with_logits(logits, (given > 0).double(), reduction="none")
    wanted = (terms[:, :1].mean() + terms[:, 1:].mean()) / 2
    torch.testing.assert_close(balanced_loss(logits, given), wanted)
    assert balanced_loss(100 * given, given) < 1e-12
    torch.testing.assert_close(
        balanced_loss(0 * logits, -torch.ones(4, 5, 5)).item(), np.log(2) / 2
    )  # no place is right


def test_context_is_the_papers():
    config = SiamFCConfig(context=0.5)
    assert config.sides(np.array([0.0, 0, 30, 30]))[0] == 60  # (w + 2p)(h + 2p) with p = (w + h)/4
    assert config.sides(np.array([0.0, 0, 40, 20])) == pytest.approx((3500**0.5, 3500**0.5 * 2.5))


def test_a_search_around_a_box_has_the_template_in_its_middle():
    frame = noise(90, 100, 3).numpy()
    look = look_at(frame, np.array([30.0, 20, 62, 52]), CONFIG)
    search = search_around(frame, np.array([46.0, 36.0]), look, CONFIG)
    assert np.array_equal(look.template.permute(1, 2, 0), frame[20:52, 30:62])
    assert torch.equal(search[:, 16:48, 16:48], look.template)


def test_a_box_is_followed_at_its_own_scale():
    """A box of 64 pixels is seen at half its size; distances are those of the frame."""
    pytest.importorskip("skimage", reason="the photographs are its own")
    pytest.importorskip("torchvision", reason="its intersection over union")
    for side in (32, 64):
        frames, boxes = moving_patch(3, frames=8, height=160, width=160, side=side)
        found = track_box(PixelMatcher(SiamFCConfig()), iter(frames), boxes[0])
        assert found.shape == (8, 4)
        assert np.array_equal(found[0], boxes[0])
        assert mean_overlap(found[1:], boxes[1:]) > 0.9


def test_a_network_in_which_nothing_was_learned_tracks_as_well_as_its_features_do():
    frame = noise(96, 96, 3).numpy()
    frames = np.stack([np.roll(frame, 2 * t, axis=1) for t in range(4)])
    found = track_box(network(), frames, np.array([30.0, 30, 62, 62]))
    assert found[:, 0].tolist() == [30, 32, 34, 36]
    assert found[:, 1].tolist() == [30] * 4


@pytest.mark.parametrize(
    ("frames", "box", "complaint"),
    [
        (0, (1, 1, 9, 9), "no frames to track a box in"),
        (2, (200, 10, 220, 30), "the first frame: the box 200,10,220,30 lies outside the picture of 50 x 40"),
        (2, (10, 10, 10, 30), "has no area"),
    ],
)
def test_what_cannot_be_tracked_is_named(frames, box, complaint):
    with pytest.raises(UserError, match=complaint):
        track_box(network(), np.zeros((frames, 40, 50, 3), dtype=np.uint8), np.array(box))


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ({"template": 16}, "the network sees 17 pixels at once"),
        ({"search": 81}, "their difference must be a multiple of 4"),
        ({"search": 32}, "and not 0"),
        ({"template": 0}, "template=0"),
    ],
)
def test_sizes_that_do_not_go_together_are_named(sizes, complaint):
    with pytest.raises(UserError, match=complaint):
        SiamFCConfig(**sizes)
