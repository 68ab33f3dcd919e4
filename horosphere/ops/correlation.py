"""Where a template lies in a picture: cross-correlation, each picture with its own template."""

import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.errors import UserError
from horosphere.ops.checks import need_pictures


def correlated(search: Tensor, template: Tensor) -> Tensor:
    """Σ_cij search(c, y + i, x + j) · template(c, i, j).   (B, C, H, W), (B, C, h, w) -> (B, H - h + 1, W - w + 1)

    Convention: an answer at (y, x) is for the template's upper left corner there; nothing lies beyond the border.

    >>> correlated(torch.eye(3).view(1, 1, 3, 3), torch.eye(2).view(1, 1, 2, 2))
    tensor([[[2., 0.],
             [0., 2.]]])
    """
    _need_template(search, template)
    if len(search) == 0:
        return search.new_zeros(0, *(1 + n - m for n, m in zip(search.shape[2:], template.shape[2:], strict=True)))
    return F.conv2d(search.flatten(0, 1)[None], template, groups=len(template))[0]


def normalised_correlation(search: Tensor, template: Tensor) -> Tensor:
    """Pearson's correlation of the template with each window, from -1 to 1; 0 where one of them has one colour only.

    (B, C, H, W), (B, C, h, w) -> (B, H - h + 1, W - w + 1). Σ(x - x̄)(t - t̄) / √(Σ(x - x̄)² Σ(t - t̄)²)
    Convention: means over all channels at once, as scikit-image's `match_template`; OpenCV's TM_CCOEFF_NORMED has one
    for each channel. Of grey pictures all three agree.

    >>> picture = torch.rand(1, 3, 8, 9)
    >>> found = normalised_correlation(picture, 0.5 * picture[..., 2:6, 3:7] + 0.1)
    >>> divmod(found.argmax().item(), found.shape[2])
    (2, 3)
    """
    _need_template(search, template)
    largest = torch.stack([t.abs().amax((1, 2, 3)) for t in (template, search)]).amax(0)[:, None, None]
    search, template = (t - t.mean((1, 2, 3), keepdim=True) for t in (search, template))  # sums below lose fewer digits
    ones, count = torch.ones_like(template[:, :1]), template.shape[1:].numel()
    total, squares = (correlated(t.sum(1, keepdim=True), ones) for t in (search, search.square()))
    spread, own = squares - total.square() / count, template.square().sum((1, 2, 3))[:, None, None]
    rounding = count * torch.finfo(search.dtype).eps * largest.square()  # what is left of a single colour
    flat = torch.minimum(spread, own) <= rounding
    return torch.where(flat, 0.0, correlated(search, template) * torch.where(flat, 1.0, spread * own).rsqrt())


def _need_template(search: Tensor, template: Tensor) -> None:
    need_pictures(search)
    need_pictures(template)
    fits = all(0 < m <= n for n, m in zip(search.shape[1:], template.shape[1:], strict=True))
    if search.shape[:2] != template.shape[:2] or not fits:
        raise UserError(
            f"templates of shape {tuple(template.shape)} for pictures of {tuple(search.shape)}: "
            "give each picture one, with as many channels and no larger than it"
        )
