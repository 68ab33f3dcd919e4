"""Anchors and their objects, beside d2l and a search by hand; the conventions of torchvision's boxes."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.ops.boxes import _overlaps, anchors, assign, decode, encode

ops = pytest.importorskip("torchvision.ops", reason="IoU, NMS and pooling are torchvision's")

# d2l, section 14.4: a dog (0), a cat (1), and five anchors
TRUTH = torch.tensor([[0.1, 0.08, 0.52, 0.92], [0.55, 0.2, 0.9, 0.88]])
FIVE = torch.tensor(
    [
        [0, 0.1, 0.2, 0.3],
        [0.15, 0.2, 0.4, 0.4],
        [0.63, 0.05, 0.88, 0.98],
        [0.66, 0.45, 0.8, 0.8],
        [0.57, 0.3, 0.92, 0.9],
    ]
)


def random_boxes(*shape, seed=0, dtype=torch.float32):
    corners = torch.rand(*shape, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return torch.cat(list(corners.sort(-2).values.unbind(-2)), -1)


# -- anchors ----------------------------------------------------------------------------------------------------------


def test_anchors_are_those_of_d2l():
    made = anchors(561, 728, [0.75, 0.5, 0.25], [1, 2, 0.5])
    assert made.shape == (2_042_040, 4)
    assert_close(made.reshape(561, 728, 5, 4)[250, 250, 0], torch.tensor([0.06, 0.07, 0.63, 0.82]), atol=5e-3, rtol=0)


def test_anchors_are_those_of_a_loop():
    sizes, ratios, (height, width) = [0.6, 0.3], [2, 0.5, 3], (3, 5)
    expected = []
    for i in range(height):
        for j in range(width):
            for size, ratio in [(0.6, 2), (0.3, 2), (0.6, 0.5), (0.6, 3)]:
                # the width is `ratio` times the height, in pixels of square cells
                w, h = size * ratio**0.5 * height / width, size / ratio**0.5
                assert w * width / (h * height) == pytest.approx(ratio)
                x, y = (j + 0.5) / width, (i + 0.5) / height
                expected.append([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    assert_close(
        anchors(height, width, sizes, ratios, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
    )


def test_anchors_are_torchvisions_but_for_half_a_cell_and_the_ratio():
    """Its centres are the cells' upper left corners, and its ratio is the height over the width."""
    utils = pytest.importorskip("torchvision.models.detection.anchor_utils", reason="an oracle")
    lists = pytest.importorskip("torchvision.models.detection.image_list", reason="an oracle")
    maker = utils.AnchorGenerator(sizes=((32,),), aspect_ratios=((1.0, 4.0),))
    picture = lists.ImageList(torch.zeros(1, 3, 128, 128), [(128, 128)])
    theirs = maker(picture, [torch.zeros(1, 1, 8, 8)])[0]
    assert_close(128 * anchors(8, 8, [32 / 128], [1, 1 / 4]) - 128 / 8 / 2, theirs)


@pytest.mark.parametrize(("sizes", "ratios"), [([], [1]), ([0.5], []), ([0.5, 0], [1]), ([0.5], [1, -1])])
def test_anchors_without_a_size_are_refused(sizes, ratios):
    with pytest.raises(UserError, match="above 0"):
        anchors(2, 2, sizes, ratios)


# -- assignment -------------------------------------------------------------------------------------------------------


def by_hand(given, truth, threshold=0.5):
    """The definition, pair by pair: the largest of all, its row and column crossed out, until objects are served."""
    overlaps = ops.box_iou(given, truth).tolist()
    answer, left = [-1] * len(given), set(range(len(truth)))
    free = set(range(len(given)))
    while left and free:
        _, object, anchor = max((overlaps[a][t], -t, -a) for a in free for t in left)
        answer[-anchor] = -object
        left.remove(-object)
        free.remove(-anchor)
    for a in free:
        best = max(range(len(truth)), key=lambda t: (overlaps[a][t], -t), default=None)
        if best is not None and overlaps[a][best] >= threshold:
            answer[a] = best
    return answer


def test_the_assignment_is_d2ls():
    answer = assign(FIVE, TRUTH[None], torch.tensor([2]))
    assert (answer + 1).tolist() == [[0, 1, 2, 0, 2]]  # classes, 0 for the background


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
@pytest.mark.parametrize(("number", "objects"), [(60, 1), (60, 7), (5, 5), (3, 6), (1, 4)])
def test_the_assignment_is_that_of_a_search(number, objects, threshold):
    given, truth = random_boxes(number, seed=1), random_boxes(8, objects, seed=2)
    counts = torch.arange(8) % (objects + 1)
    answer = assign(given, truth, counts, threshold)
    expected = [by_hand(given, boxes[:count], threshold) for boxes, count in zip(truth, counts, strict=True)]
    assert answer.tolist() == expected


def test_of_equals_the_first_is_taken():
    """On a grid many pairs have the same IoU, zero among them; still every object has an anchor of its own."""
    given = anchors(4, 4, [0.25], [1, 2])
    truth = torch.tensor([[[0.0, 0, 0.5, 0.5], [0.0, 0, 0.5, 0.5], [0.25, 0.25, 0.75, 0.75], [2, 2, 3, 3]]])
    answer = assign(given, truth, torch.tensor([4]))
    assert answer[0].tolist() == by_hand(given, truth[0])
    assert set(range(4)) <= set(answer[0].tolist())


@pytest.mark.parametrize("objects", [0, 3])
def test_pictures_without_objects_are_background(objects):
    answer = assign(FIVE, random_boxes(2, objects), torch.zeros(2, dtype=torch.int64))
    assert answer.shape == (2, 5)
    assert (answer == -1).all()
    assert assign(FIVE[:0], random_boxes(2, objects), torch.tensor([objects] * 2)).shape == (2, 0)


def test_what_fills_up_is_never_an_object():
    """Not even where it is exactly an anchor, or no box at all."""
    counts = torch.tensor([2])
    for filler in (FIVE, torch.zeros(5, 4), torch.full((5, 4), float("nan"))):
        answer = assign(FIVE, torch.cat([TRUTH, filler])[None], counts)
        assert_close(answer, assign(FIVE, TRUTH[None], counts))


def test_the_unit_of_boxes_does_not_matter():
    given, truth = random_boxes(40, dtype=torch.float64), random_boxes(3, 4, seed=5, dtype=torch.float64)
    counts = torch.tensor([4, 2, 3])
    assert_close(assign(given, truth, counts), assign(512 * given, 512 * truth, counts))


def test_the_assignment_is_one_graph():
    """No step waits for a value: Dynamo would break the graph there."""
    given, truth, counts = random_boxes(30), random_boxes(4, 3, seed=3), torch.tensor([3, 0, 1, 2])
    compiled = torch.compile(assign, fullgraph=True, backend="aot_eager")
    assert_close(compiled(given, truth, counts), assign(given, truth, counts))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="it needs a GPU")
def test_the_assignment_is_the_same_on_a_gpu_and_never_waits_for_it():
    given, truth, counts = random_boxes(300), random_boxes(8, 6, seed=3), torch.arange(8) % 7
    there = [part.cuda() for part in (given, truth, counts)]
    assign(*there)
    torch.cuda.set_sync_debug_mode("error")
    try:
        answer = assign(*there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_close(answer.cpu(), assign(given, truth, counts))


# -- what torchvision has: its conventions ----------------------------------------------------------------------------


def coder():
    utils = pytest.importorskip("torchvision.models.detection._utils", reason="offsets are torchvision's")
    return utils.BoxCoder((10.0, 10.0, 5.0, 5.0))


def test_offsets_are_divided_by_the_anchors_size():
    made = encode(TRUTH[[0, 1, 1]], FIVE[[1, 2, 4]])
    assert_close(made, coder().encode_single(TRUTH[[0, 1, 1]], FIVE[[1, 2, 4]]))
    assert_close(made[0], torch.tensor([1.40, 10.0, 2.594, 7.175]), atol=1e-3, rtol=0)
    assert_close(made[1], torch.tensor([-1.2, 0.269, 1.68, -1.57]), atol=5e-3, rtol=0)
    (left, top, right, bottom), (a, b, c, d) = TRUTH[0], FIVE[1]
    by_formula = [
        ((left + right) / 2 - (a + c) / 2) / (c - a) / 0.1,
        ((top + bottom) / 2 - (b + d) / 2) / (d - b) / 0.1,
    ]
    by_formula += [((right - left) / (c - a)).log() / 0.2, ((bottom - top) / (d - b)).log() / 0.2]
    assert_close(made[0], torch.stack(by_formula))


def test_decoded_offsets_give_the_box_again():
    given, truth = random_boxes(50, dtype=torch.float64) + 0.01, random_boxes(50, seed=9, dtype=torch.float64)
    given[:, 2:] += 0.5  # wide enough that no logarithm of a width is clamped, as it is at log(1000 / 16)
    assert_close(decode(encode(truth, given), given), truth)


def test_any_offsets_are_decoded_as_torchvision_does():
    given, offsets = random_boxes(50) + 0.01, 30 * torch.randn(50, 4, generator=torch.Generator().manual_seed(3))
    assert_close(decode(offsets, given), coder().decode_single(offsets, given))
    assert decode(torch.full((1, 4), 1e4), given[:1]).isfinite().all()


def test_overlap_is_a_share_of_the_union():
    squares = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [2, 0, 4, 2]])
    assert_close(ops.box_iou(squares[:1], squares), torch.tensor([[1, 1 / 7, 0]]))


def test_overlaps_of_a_batch_are_torchvisions_to_the_last_bit():
    given, truth = random_boxes(70, seed=7), random_boxes(3, 5, seed=8)
    assert torch.equal(_overlaps(truth, given), torch.stack([ops.box_iou(boxes, given) for boxes in truth]))


def test_suppression_is_opencvs_and_kornias():
    boxes, scores = 100 * random_boxes(200, seed=4), torch.rand(200, generator=torch.Generator().manual_seed(5))
    kept = ops.nms(boxes, scores, 0.5)
    assert 50 < len(kept) < 190
    cv2 = pytest.importorskip("cv2", reason="an oracle")
    corners = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1)
    assert cv2.dnn.NMSBoxes(corners.tolist(), scores.tolist(), 0.0, 0.5).ravel().tolist() == kept.tolist()
    bbox = pytest.importorskip("kornia.geometry.bbox", reason="an oracle")
    assert bbox.nms(boxes, scores, 0.5).tolist() == kept.tolist()


def test_suppression_is_by_class():
    boxes, scores = 100 * random_boxes(200, seed=4), torch.rand(200, generator=torch.Generator().manual_seed(5))
    classes = torch.arange(200) % 3
    apart = [
        torch.nonzero(classes == c)[:, 0][ops.nms(boxes[classes == c], scores[classes == c], 0.5)] for c in range(3)
    ]
    assert set(ops.batched_nms(boxes, scores, classes, 0.5).tolist()) == set(torch.cat(apart).tolist())


def test_pooling_of_regions_includes_their_end():
    """Pixels 2 to 6 and 3 to 8 belong to the region; boxes elsewhere here end before their right and bottom."""
    x = torch.rand(2, 3, 12, 10, generator=torch.Generator().manual_seed(6))
    pooled = ops.roi_pool(x, torch.tensor([[1.0, 2, 3, 6, 8]]), (3, 2))
    assert_close(pooled, F.adaptive_max_pool2d(x[1:, :, 3:9, 2:7], (3, 2)))
    assert not torch.equal(pooled, F.adaptive_max_pool2d(x[1:, :, 3:8, 2:6], (3, 2)))


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_smooth_l1_has_no_step(beta):
    d = torch.linspace(-4, 4, 801, dtype=torch.float64)
    loss = F.smooth_l1_loss(d, torch.zeros_like(d), beta=beta, reduction="none")
    assert_close(loss, torch.where(d.abs() < beta, d**2 / (2 * beta), d.abs() - beta / 2))
    assert loss.diff().abs().max() <= 0.01 + 1e-12
    printed = torch.where(d.abs() < 1, 0.5 * d**2, d.abs() - 0.5)  # the notes', with the only α that has no step
    assert beta != 1 or torch.equal(loss, printed)
