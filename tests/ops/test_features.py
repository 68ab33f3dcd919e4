"""Corners and descriptors: ours against scikit-image and explicit loops; kornia's, which we use as they are, pinned."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.ops.features import brief, hog, noble, surf

kornia = pytest.importorskip("kornia", reason="half of the features are kornia's")
import kornia.feature as detectors  # noqa: E402
from kornia import geometry  # noqa: E402
from kornia.geometry.transform import ScalePyramid  # noqa: E402

INSIDE = (slice(20, -20), slice(20, -20))


def some(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tensor(picture, dtype=torch.float64):
    return torch.tensor(np.ascontiguousarray(picture), dtype=dtype)[None, None]


def grid(height, width):
    return torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")


@pytest.fixture(scope="module")
def camera():
    data = pytest.importorskip("skimage.data", reason="its photographs are what libraries are compared on")
    return data.camera() / 255


@pytest.fixture(scope="module")
def skimage():
    return pytest.importorskip("skimage.feature")


def correlation(a, b):
    return np.corrcoef(a[INSIDE].ravel(), b[INSIDE].ravel())[0, 1]


# -- corners ----------------------------------------------------------------------------------------------------------


def test_harris(camera, skimage):
    """14.18: kornia's slopes are the derivative, scikit-image's 8 times that: 8⁴ in the answer."""
    ours = detectors.harris_response(tensor(camera), 0.05)[0, 0].numpy()
    theirs = skimage.corner_harris(camera, k=0.05, sigma=1)
    assert correlation(ours, theirs) > 0.999999  # windows: 7 pixels and 9
    assert np.abs(8**4 * ours - theirs)[INSIDE].max() < 2e-3 * theirs.max()
    cv2 = pytest.importorskip("cv2")
    assert (
        0.97 < correlation(ours, cv2.cornerHarris(camera.astype(np.float32), 3, 3, 0.05)) < 0.99
    )  # a box, no Gaussian


def test_kanade_tomasi(camera, skimage):
    """14.19: the smaller eigenvalue of M; 8² between the two."""
    ours = detectors.gftt_response(tensor(camera))[0, 0].numpy()
    theirs = skimage.corner_shi_tomasi(camera, sigma=1)
    assert correlation(ours, theirs) > 0.99999
    assert np.abs(8**2 * ours - theirs)[INSIDE].max() < 2e-3 * theirs.max()


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_noble(camera, skimage, sigma):
    """14.20: scikit-image has twice det/(tr + ε)."""
    ours = noble(tensor(camera), sigma)[0, 0].numpy()
    theirs = skimage.corner_harris(camera, method="eps", eps=1e-12, sigma=sigma) / 2 / 8**2
    np.testing.assert_allclose(ours[INSIDE], theirs[INSIDE], rtol=0, atol=1e-14)


def test_corners_edges_and_flat_parts():
    """A corner answers, an edge does not (Harris: negative), a flat part is 0. Brightness scales by its power."""
    square = torch.zeros(1, 1, 40, 40, dtype=torch.float64)
    square[..., 12:28, 12:28] = 1
    answers = {
        "noble": (noble, 2),
        "harris": (lambda x: detectors.harris_response(x, 0.05), 4),
        "gftt": (detectors.gftt_response, 2),
    }
    for name, (function, power) in answers.items():
        response = function(square)[0, 0]
        y, x = divmod(response.argmax().item(), 40)
        assert {y, x} <= {11, 12, 27, 28}
        assert response[20, 12] < 1e-9 * response.max()
        if name == "harris":
            assert response[20, 12] < -1e-3
        assert response[0, 0].abs() == response[20, 20].abs() == 0
        assert_close(function(0.5 * square), 0.5**power * function(square))


def test_corners_have_gradients():
    assert gradcheck(noble, some(1, 2, 7, 7).requires_grad_())
    flat = torch.zeros(1, 1, 9, 9, requires_grad=True)
    noble(flat).sum().backward()
    assert flat.grad.isfinite().all()


def blob(sigma, height=128, width=160):
    y, x = grid(height, width)
    return torch.exp(-((x - 70) ** 2 + (y - 60) ** 2) / (2 * sigma**2))[None, None]


def detector(response, features=8, **how):
    pyramid, refine = ScalePyramid(3, 1.6, 15), geometry.ConvQuadInterp3d(10)
    return detectors.ScaleSpaceDetector(features, 1.0, pyramid, response, refine, **how)


@pytest.mark.parametrize("sigma", [4.0, 8.0])
def test_the_scale_of_a_blob(sigma):
    """14.21, 14.22: an extremum in place and scale. A bright blob is a minimum of DoG.

    kornia names the finer of the two Gaussians: the blob's σ is √k times that, k = 2^(1/3).
    """
    frames, answers = detector(detectors.BlobDoG(), minima_are_also_good=True, scale_space_response=True)(blob(sigma))
    assert_close(detectors.get_laf_center(frames)[0, 0], torch.tensor([70.0, 60.0]), rtol=0, atol=0.1)
    assert detectors.get_laf_scale(frames)[0, 0].item() * 2 ** (1 / 6) == pytest.approx(sigma, rel=0.02)
    assert answers[0, 0] > 5 * answers[0, 1]
    only_maxima = detector(detectors.BlobDoG(), scale_space_response=True)(blob(sigma))[0]
    centres = detectors.get_laf_center(only_maxima)[0]
    assert (centres - torch.tensor([70.0, 60.0])).norm(dim=1).min() > 5


def test_corners_at_a_scale():
    """14.21: M·σ², so σ⁴ in Harris' answer. Each picture of a batch has its own σ."""
    x = some(2, 1, 20, 20)
    plain = detectors.harris_response(x, 0.05)
    scaled = detectors.harris_response(x, 0.05, sigmas=torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert_close(scaled, plain * torch.tensor([1.0, 81.0]).view(2, 1, 1, 1).double())


def test_corners_over_scales_follow_the_picture(camera):
    """14.23: in a picture twice as large they are found at twice the place and twice the scale."""
    small = tensor(camera[::2, ::2], torch.float32)
    large = torch.nn.functional.interpolate(small, scale_factor=2, mode="bicubic")  # pixel i goes to 2i + ½
    (places, scales), (again, large_scales) = (
        (detectors.get_laf_center(frames)[0], detectors.get_laf_scale(frames).flatten())
        for frames in (detector(detectors.CornerHarris(0.05), features=n)(x)[0] for x, n in ((small, 40), (large, 400)))
    )
    apart = torch.cdist(2 * places + 0.5, again) + 4 * (large_scales.log2() - scales.log2()[:, None] - 1).abs()
    assert (apart.amin(1) < 4).float().mean() > 0.7


def test_extrema_among_26_neighbours():
    """14.22, by loops; with the neighbours of the notes (8, and the same pixel of two scales) there would be more."""
    x = some(1, 1, 5, 7, 8)
    largest, least = geometry.nms3d_minmax(x)
    volume, fewer = x[0, 0].numpy(), 0
    offsets = [o for o in itertools.product((-1, 0, 1), repeat=3) if any(o)]
    assert len(offsets) == 26
    for place in itertools.product(range(1, 4), range(1, 6), range(1, 7)):
        others = {o: volume[tuple(np.add(place, o))] for o in offsets}
        assert largest[(0, 0, *place)] == (volume[place] > max(others.values()))
        assert least[(0, 0, *place)] == (volume[place] < min(others.values()))
        notes = [value for o, value in others.items() if o[0] == 0 or o[1:] == (0, 0)]
        assert len(notes) == 10
        fewer += volume[place] > max(notes)
    assert largest.any()
    assert fewer > largest.sum()


def test_places_between_pixels():
    """14.28: δ = -H⁻¹g is exact on a quadratic; with the notes' D(x+1) + D(x-1) it is nowhere near."""
    top = torch.tensor([2.2, 3.3, 3.6], dtype=torch.float64)  # scale, y, x
    axes = [torch.arange(n, dtype=torch.float64) for n in (5, 7, 8)]
    away = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1) - top
    bend = torch.tensor([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.5]], dtype=torch.float64)
    quadratic = 3 - torch.einsum("...i,ij,...j", away, bend, away)
    places, values = geometry.ConvQuadInterp3d(5)(quadratic[None, None])
    at = (quadratic == quadratic.max()).nonzero()[0].tolist()
    refined, value = places[(0, 0, slice(None), *at)], values[(0, 0, *at)]
    assert_close(refined[[0, 2, 1]], top, rtol=0, atol=1e-6)  # kornia: scale, x, y
    assert value.item() == pytest.approx(3)
    line = quadratic[at[0], at[1], at[2] - 1 : at[2] + 2]

    def steps(line):
        bend = line[0] - 2 * line[1] + line[2]
        return -(line[2] - line[0]) / 2 / bend, -(line[2] + line[0]) / 2 / bend

    (right, printed), (right_higher, printed_higher) = steps(line), steps(line + 5)
    assert_close(right_higher, right)  # a constant moves no extremum; as printed it does
    assert (printed_higher - printed).abs() > 1


# -- SIFT, matching, maps ---------------------------------------------------------------------------------------------

HOMOGRAPHY = np.array([[0.95, 0.12, 5], [-0.1, 1.02, 8], [1e-4, -5e-5, 1]])


def moved(points):
    homogeneous = np.concatenate([points, np.ones((len(points), 1))], 1) @ HOMOGRAPHY.T
    return homogeneous[:, :2] / homogeneous[:, 2:]


def repeated(points, others, size):
    """The share of points that the map keeps well inside and that have a point of the other picture within 2 pixels."""
    expected = moved(points)
    inside = ((expected > 15) & (expected < size - 16)).all(1)
    return (np.linalg.norm(expected[inside, None] - others, axis=-1).min(1) < 2).mean()


def right_matches(points, descriptors, others, other_descriptors):
    _, pairs = detectors.match_snn(torch.tensor(descriptors), torch.tensor(other_descriptors), 0.8)
    first, second = pairs.numpy().T
    return len(pairs), (np.linalg.norm(moved(points)[first] - others[second], axis=1) < 3).mean()


def test_sift_under_a_homography(camera):
    """14.27, 14.31: points are found again and matched as well as OpenCV's. `SIFTFeatureScaleSpace` has the octaves and
    scales of the paper; neither of kornia's has its tests of contrast and edges."""
    cv2 = pytest.importorskip("cv2")
    first = camera[::2, ::2]
    size = len(first)
    second = cv2.warpPerspective(first, HOMOGRAPHY, (size, size), borderMode=cv2.BORDER_REFLECT_101)

    def ours(picture, sift):
        with torch.inference_mode():
            frames, _, descriptors = sift(tensor(picture, torch.float32))
        return detectors.get_laf_center(frames)[0].numpy(), descriptors[0].numpy()

    def theirs(picture):
        points, descriptors = cv2.SIFT_create(300).detectAndCompute((picture * 255).astype(np.uint8), None)
        return np.array([point.pt for point in points]), descriptors

    found, again = theirs(first), theirs(second)
    theirs_repeated, (_, theirs_right) = repeated(found[0], again[0], size), right_matches(*found, *again)
    for make in (detectors.SIFTFeature, detectors.SIFTFeatureScaleSpace):
        sift = make(300, rootsift=False)
        found, again = ours(first, sift), ours(second, sift)
        assert found[1].shape[1] == 128
        assert repeated(found[0], again[0], size) > theirs_repeated - 0.1 > 0.6
        matches, right = right_matches(*found, *again)
        assert matches > 100
        assert right > theirs_right - 0.06


def test_orientation_turns_with_the_picture(camera):
    """14.29: turned by 90° counter-clockwise on screen, every orientation grows by 90°. kornia keeps one a point."""
    picture = tensor(camera[::2, ::2], torch.float32)
    places = torch.tensor([[[100.0, 100.0], [128.0, 60.0], [70.0, 160.0]]])
    turned_places = torch.stack([places[..., 1], picture.shape[-1] - 1 - places[..., 0]], -1)
    orient = detectors.LAFOrienter(32, num_angular_bins=36)

    def angles(picture, places):
        frames = detectors.laf_from_center_scale_ori(places, torch.full((1, 3, 1, 1), 20.0), torch.zeros(1, 3, 1))
        return detectors.get_laf_orientation(orient(frames, picture)).flatten().detach()

    before, after = angles(picture, places), angles(picture.rot90(1, (2, 3)).contiguous(), turned_places)
    assert_close((after - before) % 360, torch.full((3,), 90.0), rtol=0, atol=0.01)
    ramp = grid(41, 41)[0][None, None] / 41  # brighter downwards: -90° where angles go counter-clockwise on screen
    assert math.degrees(detectors.PatchDominantGradientOrientation(41)(ramp).item()) == pytest.approx(-90, abs=0.5)


def test_descriptor_of_sift(camera):
    """14.30: 4 x 4 x 8 numbers of length 1; near OpenCV's of the same patch."""
    cv2 = pytest.importorskip("cv2")
    picture = camera[::2, ::2]
    describe = detectors.SIFTDescriptor(41, rootsift=False)
    for x, y in ((100, 100), (128, 60), (70, 160), (150, 90), (60, 100)):
        radius = 5.0
        _, theirs = cv2.SIFT_create().compute(
            (picture * 255).astype(np.uint8), [cv2.KeyPoint(float(x), float(y), 2 * radius, 0.0)]
        )
        frame = detectors.laf_from_center_scale_ori(
            torch.tensor([[[x, y]]]).float(), torch.full((1, 1, 1, 1), 6 * radius), torch.zeros(1, 1, 1)
        )
        patch = detectors.extract_patches_from_pyramid(tensor(picture, torch.float32), frame, 41)[0]
        ours = describe(patch)
        assert ours.shape == (1, 128)
        assert ours.norm().item() == pytest.approx(1, abs=1e-5)
        assert_close(describe(0.5 * patch + 0.3), ours, rtol=0, atol=1e-4)  # brightness and contrast do not matter
        layout = detectors.convert_sift_descriptor_layout(ours, "kornia", "opencv")
        assert torch.cosine_similarity(layout, torch.tensor(theirs)).item() > 0.92


def test_matching_by_the_ratio():
    """14.31: the nearest, if clearly nearer than the second. By loops."""
    a, b = some(20, 16).float(), some(30, 16, seed=1).float()
    b[:6] = a[:6] + 0.02 * some(6, 16, seed=2).float()
    ratios, pairs = detectors.match_snn(a, b, 0.7)
    expected = {}
    for i, row in enumerate(a):
        (near, j), (second, _) = sorted(((row - other).norm().item(), j) for j, other in enumerate(b))[:2]
        if near <= 0.7 * second:
            expected[i, j] = near / second
    assert [tuple(pair) for pair in pairs.tolist()] == list(expected)
    assert_close(ratios.flatten(), torch.tensor(list(expected.values())), rtol=1e-4, atol=1e-5)
    assert {(i, i) for i in range(6)} <= expected.keys()


AFFINE = torch.tensor([[1.1, 0.2, 3], [-0.15, 0.9, -7], [0, 0, 1]], dtype=torch.float64)


def pairs_of_points(noise):
    first = 100 * some(60, 2)
    errors = torch.randn(60, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return first, first @ AFFINE[:2, :2].T + AFFINE[:2, 2] + noise * errors


def test_affine_by_least_squares():
    """14.31: 6 unknowns, so 3 pairs are the least. A "rotation matrix" has 1."""
    first, second = pairs_of_points(noise=1e-2)
    ours = geometry.find_affine(first[None], second[None])[0]
    rows = torch.cat([first, torch.ones(60, 1, dtype=torch.float64)], 1)
    assert_close(ours[:2], torch.linalg.lstsq(rows, second).solution.T, rtol=0, atol=1e-12)
    assert (ours - AFFINE).abs().max() < 1e-2
    first, second = pairs_of_points(noise=0)
    assert_close(geometry.find_affine(first[None, :3], second[None, :3])[0], AFFINE, rtol=0, atol=1e-10)
    assert geometry.find_affine(first[None, [0, 0, 0]], second[None, [0, 0, 0]]).isnan().any()


def test_ransac():
    """14.32: 40 pairs of an affine map among 20 false ones: all and only those, then least squares of them."""
    first, second = pairs_of_points(noise=1e-2)
    second[40:] = 100 * some(20, 2, seed=5)
    ours, agree = geometry.RANSAC("affine", inl_th=0.1, seed=0)(first, second)
    assert agree.tolist() == [True] * 40 + [False] * 20
    refit = geometry.find_affine(first[None, :40], second[None, :40])[0]
    assert_close(ours, refit, rtol=0, atol=1e-3)
    assert (geometry.find_affine(first[None], second[None])[0] - AFFINE).abs().max() > 0.1  # without: far off
    measure, transform = pytest.importorskip("skimage.measure"), pytest.importorskip("skimage.transform")
    theirs, agreed = measure.ransac(
        (first.numpy(), second.numpy()), transform.AffineTransform, 3, 0.1, max_trials=1000, rng=0
    )
    assert agreed.sum() == 40
    assert np.abs(theirs.params - ours.numpy()).max() < 1e-3


def test_draws_of_ransac():
    """14.32: log(1 - p)/log(1 - wˢ) draws find, with probability p, s pairs that are all right. w = ½, s = 3."""
    share, sample, surely = 0.5, 3, 0.95
    draws = math.ceil(math.log(1 - surely) / math.log(1 - share**sample))
    assert draws == 23
    right = torch.rand(20_000, draws, sample, generator=torch.Generator().manual_seed(0)) < share
    assert right.all(-1).any(-1).double().mean().item() == pytest.approx(1 - (1 - share**sample) ** draws, abs=0.005)


def test_simple_descriptors():
    """14.26: what each survives. Pixels: nothing. Differences: another brightness. Histograms: another arrangement."""
    patch = some(8, 8)
    brighter, turned = patch + 0.1, patch.rot90()
    assert not torch.allclose(brighter, patch)
    assert_close(brighter.diff(dim=1), patch.diff(dim=1))
    assert not torch.allclose(turned.diff(dim=1), patch.diff(dim=1))
    assert_close(turned.histc(10, 0, 1), patch.histc(10, 0, 1))
    assert not torch.allclose(brighter.histc(10, 0, 1), patch.histc(10, 0, 1))


# -- HOG --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "cell", "block", "bins"),
    [(512, 512, 8, 2, 9), (50, 70, 6, 3, 12), (25, 25, 5, 2, 9), (33, 47, 8, 1, 4)],
)
def test_hog_is_scikit_images(camera, skimage, height, width, cell, block, bins):
    """14.35"""
    picture = camera[:height, :width]
    theirs = skimage.hog(picture, bins, (cell, cell), (block, block), "L2")
    ours = hog(tensor(picture), cell, block, bins)[0]
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=2e-7)
    theirs = skimage.hog(picture.astype(np.float32), bins, (cell, cell), (block, block), "L2")
    ours = hog(tensor(picture, torch.float32), cell, block, bins)[0]
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-6)


def test_hog_of_colours(skimage):
    data = pytest.importorskip("skimage.data")
    picture = data.astronaut() / 255
    theirs = skimage.hog(picture, 9, (8, 8), (2, 2), "L2", channel_axis=-1)
    np.testing.assert_allclose(hog(torch.tensor(picture).permute(2, 0, 1)[None])[0].numpy(), theirs, rtol=0, atol=2e-7)


def test_hog_of_ramps_and_steps():
    """Directions are unsigned: a slope and its opposite fall into one bin. A step's slope lies across it."""
    y, x = (axis.double()[None, None] for axis in grid(16, 16))
    for picture, direction in ((x, 0), (-x, 0), (y, 4), (-y, 4), (x + y, 2), (-x - y, 2), (x - y, 6)):
        bins = hog(picture).view(4, 9).sum(0)
        # at the border one of the two slopes is 0: these pixels see the other axis
        assert bins.argmax() == direction, (picture, bins)
    assert_close(hog(3 * x + y + 7), hog(3 * x + y))
    assert_close(hog(some(1, 1, 16, 16) * 5), hog(some(1, 1, 16, 16)), rtol=0, atol=1e-5)
    assert hog(torch.full((1, 1, 16, 16), 0.4)).abs().max() < 1e-12


def test_hog_in_batches_and_gradients():
    x = some(3, 2, 24, 20)
    assert_close(hog(x, 6), torch.cat([hog(one[None], 6) for one in x]))
    assert gradcheck(lambda x: hog(x, 4, 2, 5), some(1, 1, 8, 8).requires_grad_())
    flat = torch.zeros(1, 1, 16, 16, requires_grad=True)
    hog(flat).sum().backward()
    assert flat.grad.isfinite().all()


def test_hog_and_a_linear_machine_tell_faces():
    """200 pictures of 25 x 25, half of them faces, by 144 numbers each. Five folds: 0.97."""
    data, svm = pytest.importorskip("skimage.data"), pytest.importorskip("sklearn.svm")
    selection = pytest.importorskip("sklearn.model_selection")
    features = hog(torch.tensor(data.lfw_subset())[:, None]).numpy()
    folds = selection.StratifiedKFold(5, shuffle=True, random_state=0)
    machine = svm.LinearSVC(random_state=0, max_iter=20_000)
    assert selection.cross_val_score(machine, features, np.repeat([1, 0], 100), cv=folds).mean() >= 0.95


# -- BRIEF ------------------------------------------------------------------------------------------------------------


def pairs_of_scikit_image(size, patch, seed):
    """The places that BRIEF compares there, as its source draws them, in our order."""
    drawn = (patch / 5.0 * np.random.default_rng(seed).standard_normal(size * 8)).astype(np.int32)
    drawn = drawn[(drawn < patch // 2) & (drawn > -(patch - 2) // 2)]
    ends = drawn[: 4 * size].reshape(2, size, 2)
    return torch.tensor(ends.transpose(1, 0, 2)[..., ::-1].copy(), dtype=torch.int64)  # (row, column) -> (x, y)


@pytest.fixture(scope="module")
def corners(camera, skimage):
    return skimage.corner_peaks(skimage.corner_harris(camera), min_distance=5, threshold_rel=0.05)


@pytest.mark.parametrize("sigma", [1, 2])
def test_brief_has_scikit_images_bits(camera, skimage, corners, sigma):
    """14.34"""
    extractor = skimage.BRIEF(descriptor_size=256, patch_size=49, sigma=sigma, rng=0)
    extractor.extract(camera, corners)
    points = torch.tensor(corners[extractor.mask][:, ::-1].copy())[None]
    assert points.shape[1] > 50
    ours = brief(tensor(camera), points, pairs_of_scikit_image(256, 49, seed=0), sigma)[0]
    assert np.array_equal(ours.numpy(), extractor.descriptors)


def test_brief_matches_a_shifted_picture(camera, corners):
    """Bits stay under shifts, brightness and contrast; a turn by 90° makes them strangers."""
    x, pairs = tensor(camera[::2, ::2]), pairs_of_scikit_image(256, 25, seed=0)
    points = torch.tensor(corners[:, ::-1] // 2)[None]
    points = points[:, ((points > 30) & (points < 210)).all(-1)[0]]
    bits = brief(x, points, pairs)
    assert torch.equal(brief(x.roll((7, -4), (2, 3)), points + torch.tensor([-4, 7]), pairs), bits)
    assert torch.equal(brief(0.5 * x + 0.2, points, pairs), bits)
    turned = brief(x.rot90(1, (2, 3)), torch.stack([points[..., 1], 255 - points[..., 0]], -1), pairs)
    apart = (bits[0][:, None] != turned[0]).sum(-1)
    assert apart.diagonal().double().mean() > 64
    _, matched = detectors.match_snn(bits[0].float(), bits[0].float(), 0.8)  # kornia's distance: √ of Hamming's
    assert (matched[:, 0] == matched[:, 1]).all()


def test_brief_at_the_border():
    x, pairs = some(2, 1, 12, 14), pairs_of_scikit_image(64, 13, seed=1)
    points = torch.tensor([[[0, 0], [13, 11]], [[5.4, 6.6], [13.2, 0.0]]])
    bits = brief(x, points, pairs, sigma=0.5)
    assert bits.shape == (2, 2, 64)
    assert torch.equal(brief(x[:1], points[:1].long(), pairs, sigma=0.5), bits[:1])  # whole numbers, the last pixel too
    assert bits.dtype == torch.bool
    assert_close(bits, torch.cat([brief(x[[b]], points[[b]], pairs, sigma=0.5) for b in range(2)]))
    assert torch.equal(bits[1, 0], brief(x, points.new_tensor([[[5, 7]], [[5, 7]]]), pairs, sigma=0.5)[1, 0])


# -- SURF -------------------------------------------------------------------------------------------------------------


def surf_by_loops(picture, x, y, scale):
    """Whole scales and places only: sums of pixels, sample by sample. Odd scales have samples between pixels."""
    parts = np.zeros((4, 4, 4))
    for i, j in itertools.product(range(20), range(20)):
        left, top = x + scale * (j - 10.5) + 0.5, y + scale * (i - 10.5) + 0.5  # the first pixel of a square of 2·scale
        assert left == int(left)
        rows, columns = slice(int(top), int(top) + 2 * scale), slice(int(left), int(left) + 2 * scale)
        square = picture[rows, columns]
        dx = square[:, scale:].sum() - square[:, :scale].sum()
        dy = square[scale:].sum() - square[:scale].sum()
        near = math.exp(-((i - 9.5) ** 2 + (j - 9.5) ** 2) / (2 * 3.3**2))
        parts[i // 5, j // 5] += near / scale**2 * np.array([dx, dy, abs(dx), abs(dy)])
    return parts.ravel() / math.sqrt((parts**2).sum() + 1e-10)


@pytest.mark.parametrize("scale", [1, 3])
def test_surf_by_loops(camera, scale):
    picture = camera[::4, ::4]
    points = torch.tensor([[[50, 60], [64, 64], [80.0, 47.0]]])
    ours = surf(tensor(picture), points, scale)[0]
    for (x, y), row in zip(points[0].tolist(), ours, strict=True):
        np.testing.assert_allclose(row.numpy(), surf_by_loops(picture, x, y, scale), rtol=0, atol=1e-10)
    assert_close(surf(tensor(picture, torch.float32), points, scale)[0].double(), ours, rtol=0, atol=1e-6)


def test_surf_of_stripes_and_ramps():
    """14.33, the three patches of the paper. Flat: nothing. Stripes: Σ|dx| alone. A ramp: Σdx and Σ|dx| alike."""
    y, x = (axis.double() for axis in grid(40, 40))
    patches = torch.stack([torch.full_like(x, 0.5), x % 2, x / 40, y / 40, 1 - x / 40])[:, None]
    flat, stripes, right, down, left = surf(patches, torch.full((5, 1, 2), 20.0)).view(5, 16, 4)
    assert flat.abs().max() < 1e-5
    for parts, expected in ((right, [1, 0, 1, 0]), (down, [0, 1, 0, 1]), (left, [-1, 0, 1, 0])):
        assert_close(parts / parts[:, expected.index(1), None], torch.tensor(expected).double().expand(16, 4))
    assert (stripes[:, 2] > 3 * stripes[:, 0].abs()).all()
    assert stripes[:, [1, 3]].abs().max() < 1e-9
    assert_close(stripes.norm(), torch.tensor(1.0).double())


def test_surf_between_pixels_and_scales(camera):
    """Shifts, brightness, contrast and twice the picture at twice the scale change nothing. Points may be anywhere."""
    x = tensor(camera[::2, ::2])
    points = torch.tensor([[[100.0, 100.0], [128.0, 60.0], [70.0, 160.0]]], dtype=torch.float64)
    here = surf(x, points)
    assert_close(surf(x.roll((5, 9), (2, 3)), points + torch.tensor([9, 5])), here)
    assert_close(surf(0.5 * x + 0.2, points), here, rtol=0, atol=1e-8)
    twice = x.repeat_interleave(2, 2).repeat_interleave(2, 3)  # pixel i becomes 2i and 2i + 1: its centre 2i + ½
    assert_close(surf(twice, 2 * points + 0.5, scale=2.0), here, rtol=0, atol=1e-10)
    between = surf(x, points + 0.5)
    assert (between - here).abs().max() > 1e-3
    assert torch.cosine_similarity(between, here, dim=-1).min() > 0.8
    assert gradcheck(
        lambda x, p: surf(x, p, 0.4),
        (some(1, 1, 12, 12).requires_grad_(), points[:, :1].div(20).add(0.13).requires_grad_()),
    )


def test_surf_in_batches():
    x, points = some(2, 1, 30, 40), 10 + 15 * some(2, 5, 2)
    assert_close(surf(x, points), torch.cat([surf(x[[b]], points[[b]]) for b in range(2)]))
    assert surf(x, points[:, :0]).shape == (2, 0, 64)


# -- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu():
    x, points, pairs = some(2, 1, 40, 48), 10 + 20 * some(2, 5, 2), pairs_of_scikit_image(64, 13, seed=0)
    assert_close(noble(x.cuda()).cpu(), noble(x))
    assert_close(hog(x.cuda()).cpu(), hog(x))
    assert torch.equal(brief(x.cuda(), points.cuda(), pairs.cuda()).cpu(), brief(x, points, pairs))
    assert_close(surf(x.cuda(), points.cuda()).cpu(), surf(x, points))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: noble(torch.rand(9, 9)), "pictures of shape (9, 9): give (B, C, H, W)"),
        (lambda: noble(torch.rand(1, 1, 9, 9), -1.0), "sigma=-1.0"),
        (lambda: hog(torch.rand(1, 1, 12, 40)), "pictures of 12 x 40: one block of HOG needs 16 pixels a side"),
        (lambda: hog(torch.rand(1, 1, 40, 40), cell=0), "cell=0, block=2, bins=9: each is 1 or more"),
        (lambda: surf(torch.rand(1, 3, 40, 40), torch.zeros(1, 1, 2)), "have 3 channels where 1 is needed"),
        (lambda: surf(torch.rand(1, 1, 40, 40), torch.zeros(4, 2)), "points of shape (4, 2): give (1, N, 2) as (x, y)"),
        (
            lambda: surf(torch.rand(1, 1, 40, 40), torch.full((1, 2, 2), 40.0)),
            "point 0 of picture 0 at (40, 40) lies outside",
        ),
        (
            lambda: surf(torch.rand(1, 1, 40, 40), torch.zeros(1, 1, 2), scale=9.0),
            "40 x 40 are too small for border=reflect",
        ),
        (lambda: surf(torch.rand(1, 1, 40, 40), torch.zeros(1, 1, 2), scale=0), "scale=0"),
        (lambda: brief(torch.rand(1, 1, 40, 40), torch.zeros(1, 1, 2), torch.zeros(4, 2)), "pairs of shape (4, 2)"),
    ],
)
def test_mistakes_are_one_line(call, said):
    with pytest.raises(UserError) as error:
        call()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_hog_of_no_pictures_and_of_pixels_that_are_none():
    assert hog(torch.rand(0, 1, 32, 40)).shape == (0, 432)
    picture = torch.rand(2, 1, 32, 32)
    picture[0, 0, 3, 3] = torch.nan
    found = hog(picture).view(2, 3, 3, -1)
    assert found[0, 0, 0].isnan().any()
    assert found[0, 1:].isfinite().all()
    assert found[1].isfinite().all()
