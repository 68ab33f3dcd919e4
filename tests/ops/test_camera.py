"""Cameras from points: random exact ones come back, kornia's factors have the stated signs, OpenCV agrees."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.ops.camera import decompose, dlt, project, reprojection_error

BATCH = 20


def cameras(points=12, batch=BATCH, skew=5.0, seed=0):
    """P = K R [I | -centre], its parts, and world points in general position in front of it, all in fp64."""
    random = torch.Generator().manual_seed(seed)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)

    intrinsics = torch.zeros(batch, 3, 3, dtype=torch.float64)
    intrinsics[:, 0, 0], intrinsics[:, 1, 1] = uniform(300, 900, batch), uniform(300, 900, batch)
    intrinsics[:, 0, 1] = uniform(-skew, skew, batch)
    intrinsics[:, 0, 2], intrinsics[:, 1, 2], intrinsics[:, 2, 2] = (
        uniform(200, 440, batch),
        uniform(150, 330, batch),
        1,
    )
    turn, _ = torch.linalg.qr(torch.randn(batch, 3, 3, generator=random, dtype=torch.float64))
    rotation = turn * torch.linalg.det(turn)[:, None, None]
    centre = uniform(-20, 20, batch, 3)
    camera = intrinsics @ rotation @ torch.cat([torch.eye(3).double().expand(batch, 3, 3), -centre[..., None]], -1)
    seen = torch.cat([uniform(-2, 2, batch, points, 2), uniform(4, 9, batch, points, 1)], -1)  # by the camera
    world = (seen - (rotation @ -centre[..., None]).mT) @ rotation
    return camera, (intrinsics, rotation, centre), world


@pytest.mark.parametrize("points", [6, 12, 40])
def test_exact_points_give_the_camera(points):
    camera, _, world = cameras(points)
    found = dlt(world, project(camera, world))
    assert_close(
        found / camera.abs().amax((1, 2), keepdim=True),
        camera / camera.abs().amax((1, 2), keepdim=True),
        atol=1e-10,
        rtol=0,
    )
    depth = (torch.cat([world, torch.ones_like(world[..., :1])], -1) @ found.mT)[..., 2]
    assert (depth > 3.9).all()  # in front, in units of the world


def test_decompose_has_the_stated_signs():
    """kornia's factors: a positive diagonal, det R = 1, and the true centre, whatever the sign and scale of P."""
    pytest.importorskip("kornia", reason="the factors are kornia's")
    camera, parts, _ = cameras()
    for scale in (1.0, -1.0, 0.3, -7.0):
        for found, true in zip(decompose(scale * camera), parts, strict=True):
            assert_close(found, true, atol=1e-9, rtol=1e-9)
    assert_close(torch.linalg.det(decompose(-camera)[1]), torch.ones(BATCH).double())


def test_decompose_is_opencvs():
    cv2 = pytest.importorskip("cv2", reason="OpenCV is the oracle")
    pytest.importorskip("kornia", reason="the factors are kornia's")
    camera, _, _ = cameras()
    for one, K, R, centre in zip(camera.numpy(), *decompose(camera), strict=True):
        intrinsics, rotation, place, *_ = cv2.decomposeProjectionMatrix(one)
        if np.linalg.det(rotation) > 0:  # else OpenCV's has another sign
            assert_close(K, torch.from_numpy(intrinsics / intrinsics[2, 2]))
            assert_close(R, torch.from_numpy(rotation))
        assert_close(centre, torch.from_numpy((place[:3] / place[3])[:, 0]))


def test_dlt_beside_kornia_and_opencv():
    """Their pose with K known is ours with K found, on exact points."""
    kornia = pytest.importorskip("kornia", reason="kornia is the oracle")
    cv2 = pytest.importorskip("cv2", reason="OpenCV is the oracle")
    camera, (K, _, _), world = cameras(20, skew=0.0)  # neither has one
    image = project(camera, world)
    _, rotation, centre = decompose(dlt(world, image))
    pose = torch.cat([rotation, -rotation @ centre[..., None]], -1)
    assert_close(kornia.geometry.solve_pnp_dlt(world, image, K), pose, atol=1e-8, rtol=1e-8)
    _, turn, shift = cv2.solvePnP(world[0].numpy(), image[0].numpy(), K[0].numpy(), None)
    theirs = np.concatenate([cv2.Rodrigues(turn)[0], shift], 1)
    assert_close(pose[0], torch.from_numpy(theirs), atol=1e-6, rtol=0)


def test_dlt_beside_calibration_of_opencv():
    """With noise of a pixel's part: K, the place and the reprojection error of OpenCV's least squares, nearly."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is the oracle")
    pytest.importorskip("kornia", reason="the factors are kornia's")
    camera, _, world = cameras(200, batch=1, skew=0.0)
    noise = 0.1 * torch.randn(1, 200, 2, generator=torch.Generator().manual_seed(1)).double()
    image = project(camera, world) + noise
    found = dlt(world, image)
    ours, _, place = decompose(found)
    flags = cv2.CALIB_USE_INTRINSIC_GUESS | cv2.CALIB_ZERO_TANGENT_DIST
    flags |= cv2.CALIB_FIX_K1 | cv2.CALIB_FIX_K2 | cv2.CALIB_FIX_K3
    guess = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
    views = [world[0].float().numpy()], [image[0].float().numpy()]
    rms, theirs, _, turn, shift = cv2.calibrateCamera(*views, (640, 480), guess, np.zeros(5), flags=flags)
    assert_close(ours[0], torch.from_numpy(theirs), atol=1.0, rtol=0)
    assert_close(place[0], torch.from_numpy(-cv2.Rodrigues(turn[0])[0].T @ shift[0])[:, 0], atol=0.02, rtol=0)
    assert float(reprojection_error(found, world, image)) == pytest.approx(rms, rel=0.01)  # we have a skew more


def test_the_world_may_move_and_be_scaled():
    """Another origin and unit of the world give the same pictures, and a camera that says so."""
    camera, _, world = cameras()
    image = project(camera, world)
    moved = 1000 * world + torch.tensor([5e4, -2e4, 1e4]).double()
    assert reprojection_error(dlt(moved, image), moved, image).max() < 1e-8
    assert_close(dlt(moved[:1], image[:1]), dlt(moved, image)[:1])  # a batch is its rows


def test_fp32_is_good_to_a_hundredth_of_a_pixel():
    camera, _, world = cameras(30)
    image = project(camera, world)
    found = dlt(world.float(), image.float())
    assert found.dtype == torch.float32
    assert reprojection_error(found.double(), world, image).max() < 0.05


def test_gradients():
    """Singular values are distinct where points are noisy."""
    camera, _, world = cameras(8, batch=2)
    image = (
        project(camera, world) / 100 + 0.05 * torch.randn(2, 8, 2, generator=torch.Generator().manual_seed(1)).double()
    )
    assert gradcheck(dlt, (world.requires_grad_(), image.requires_grad_()))
    assert gradcheck(lambda w, i: reprojection_error(dlt(w, i), w, i), (world, image))


GENERAL = cameras(8, batch=1)[2]
FLAT = torch.cat([GENERAL[..., :2], (GENERAL[..., :1] - 2 * GENERAL[..., 1:2])], -1)


@pytest.mark.parametrize(
    ("world", "image", "says"),
    [
        (GENERAL[:, :5], torch.rand(1, 5, 2).double(), "6 points or more, and there are 5"),
        (FLAT, torch.rand(1, 8, 2).double(), "world points lie in a plane"),
        (FLAT.float(), torch.rand(1, 8, 2), "world points lie in a plane"),
        (GENERAL, torch.ones(1, 8, 2).double(), "image points lie on a line"),
        (
            GENERAL[:, [0, 1, 2, 3, 3, 3, 3, 3]],
            torch.rand(1, 8, 2).double()[:, [0, 1, 2, 3, 3, 3, 3, 3]],
            "more than one",
        ),
        (GENERAL, torch.rand(1, 7, 2).double(), r"\(1, 8, 3\) and \(1, 7, 2\)"),
        (GENERAL, torch.rand(1, 8, 2), "both alike"),
        (GENERAL, torch.full((1, 8, 2), torch.nan).double(), "NaN"),
    ],
)
def test_what_is_refused(world, image, says):
    with pytest.raises(UserError, match=says):
        dlt(world, image)


def test_a_camera_has_twelve_numbers():
    with pytest.raises(UserError, match=r"\(B, 3, 4\)"):
        decompose(torch.eye(3)[None])
