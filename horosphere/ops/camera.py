"""A pinhole camera from points whose places in the world are known: x ~ P X, and what P is made of."""

import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.extras import require

FEWEST = 6  # points: P has eleven unknowns, a point gives two equations


def dlt(world: Tensor, image: Tensor) -> Tensor:
    """The camera that takes world points to image points.   (B, n, 3), (B, n, 2) -> (B, 3, 4)

    Each point gives two rows of A p = 0: (X, 0, -x X) and (0, X, -y X) with X = (X, Y, Z, 1).
    p is the right singular vector of A's least singular value; both sets of points are centred and scaled first.
    Convention: points are (x, y) with pixel centres at whole numbers. P is scaled so that (P X)₃ is the depth in units
    of the world, positive in front of a camera whose x goes right and y down. At least six points, not in a plane:
    cv2.solvePnP needs K for fewer, cv2.calibrateCamera several views of a plane.

    >>> world = torch.tensor([[[0, 0, 4], [1, 0, 5], [0, 1, 6], [1, 1, 4], [-1, 1, 5], [1, -1, 7], [2, 1, 6.0]]])
    >>> dlt(world, world[..., :2] / world[..., 2:]).round(decimals=3) + 0.0  # a camera at the origin that looks along Z
    tensor([[[1., 0., 0., 0.],
             [0., 1., 0., 0.],
             [0., 0., 1., 0.]]])
    """
    _checked(world, image)
    to_unit_world, to_unit_image = _normaliser(world), _normaliser(image)
    points, pixels = _moved(to_unit_world, world), _moved(to_unit_image, image)
    nothing = torch.zeros_like(points)
    rows = [
        torch.cat([points, nothing, -pixels[..., :1] * points], -1),
        torch.cat([nothing, points, -pixels[..., 1:2] * points], -1),
    ]
    _, singular, right = torch.linalg.svd(torch.cat(rows, -2), full_matrices=False)
    # rounding leaves about so much of a singular value that is 0
    nothing_left = 2 * world.shape[-2] * torch.finfo(world.dtype).eps * singular[..., :1]
    if bool((singular[..., -2:-1] <= nothing_left).any()):
        raise UserError("a camera from points: more than one camera fits them. Give points in general position.")
    unit = right[..., -1, :].unflatten(-1, (3, 4))
    camera = torch.linalg.solve(to_unit_image, unit @ to_unit_world)
    turn = torch.linalg.det(camera[..., :3]).sign()[..., None, None]
    return camera * turn / torch.linalg.vector_norm(camera[..., 2:, :3], dim=-1, keepdim=True)


def project(camera: Tensor, world: Tensor) -> Tensor:
    """World points as the camera sees them: P X, divided by its third part.   (B, 3, 4), (B, n, 3) -> (B, n, 2)

    >>> camera = torch.eye(3, 4)[None]
    >>> project(camera, torch.tensor([[[2.0, 1.0, 2.0]]]))
    tensor([[[1.0000, 0.5000]]])
    """
    seen = _moved(camera, world)
    return seen[..., :2] / seen[..., 2:]


def reprojection_error(camera: Tensor, world: Tensor, image: Tensor) -> Tensor:
    """√ of the mean squared distance between image points and projected ones, in pixels.   (B, 3, 4), … -> (B,)

    Convention: the root of the mean over points of dx² + dy², as cv2.calibrateCamera returns it.

    >>> camera, world = torch.eye(3, 4)[None], torch.tensor([[[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]])
    >>> reprojection_error(camera, world, torch.tensor([[[3.0, 4.0], [1.0, 1.0]]]))
    tensor([3.5355])
    """
    return (project(camera, world) - image).square().sum(-1).mean(-1).sqrt()


def decompose(camera: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a camera is made of: P ~ K R [I | -centre].   (B, 3, 4) -> K (B, 3, 3), R (B, 3, 3), centre (B, 3)

    Convention: K is upper triangular with a positive diagonal and K₃₃ = 1, det R = 1. R takes directions of the world
    to those of the camera; its translation is -R centre. kornia's KRt_from_projection has the factors.

    >>> K, R, centre = decompose(torch.tensor([[[2.0, 0, 0, -2], [0, 2, 0, 0], [0, 0, 1, 0]]]))
    >>> K[0].diagonal(), centre + 0.0
    (tensor([2., 2., 1.]), tensor([[1., 0., 0.]]))
    """
    if camera.ndim != 3 or camera.shape[1:] != (3, 4):
        raise UserError(f"a camera is (B, 3, 4); this is {tuple(camera.shape)}.")
    require("kornia")
    from kornia.geometry.epipolar import KRt_from_projection

    intrinsics, rotation, translation = KRt_from_projection(camera)
    centre = -(rotation.mT @ translation)[..., 0]
    return intrinsics / intrinsics[:, 2:, 2:], rotation, centre


def _moved(matrix: Tensor, points: Tensor) -> Tensor:
    """A matrix (B, k, d + 1) applied to points (B, n, d), which get a 1 at their end.   -> (B, n, k)"""
    return torch.cat([points, torch.ones_like(points[..., :1])], -1) @ matrix.mT


def _normaliser(points: Tensor) -> Tensor:
    """The map that puts points around the origin, √d away in the mean.   (B, n, d) -> (B, d + 1, d + 1)

    Without it A holds 1 beside x² in pixels, and its least singular vector has few digits.
    """
    size = points.shape[-1]
    centre = points.mean(-2)
    spread = torch.linalg.vector_norm(points - centre[:, None], dim=-1).mean(-1)
    scale = (size**0.5 / spread)[:, None]
    matrix = torch.diag_embed(torch.cat([scale.expand(-1, size), torch.ones_like(scale)], -1))
    shift = torch.zeros_like(matrix)
    shift[:, :size, -1] = -scale * centre
    return matrix + shift


def _checked(world: Tensor, image: Tensor) -> None:
    shapes = f"{tuple(world.shape)} and {tuple(image.shape)}"
    if world.ndim != 3 or world.shape[-1] != 3 or image.shape != (*world.shape[:2], 2):
        raise UserError(f"a camera needs world points (B, n, 3) and image points (B, n, 2); these are {shapes}.")
    if world.dtype != image.dtype or world.dtype not in (torch.float32, torch.float64):
        raise UserError(f"a camera needs points in fp32 or fp64, both alike; these are {world.dtype}, {image.dtype}.")
    if world.shape[1] < FEWEST:
        raise UserError(f"a camera needs {FEWEST} points or more, and there are {world.shape[1]}. Measure more.")
    if not bool(world.isfinite().all() & image.isfinite().all()):
        raise UserError("a camera from points: some are NaN or infinite. Drop them first.")
    for points, place in ((world, "world points lie in a plane"), (image, "image points lie on a line")):
        extents = torch.linalg.svdvals((points - points.mean(1, keepdim=True)).detach())
        # the flattest set that still has half of the digits left
        if bool((extents[:, -1] <= torch.finfo(points.dtype).eps ** 0.5 * extents[:, 0]).any()):
            raise UserError(f"a camera from points: the {place}. Add some outside of it.")
