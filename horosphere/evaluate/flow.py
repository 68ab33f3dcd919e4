"""How far a flow is from the true one."""

import torch
from torch import Tensor

from horosphere.errors import UserError


def endpoint_error(flow: Tensor, truth: Tensor, valid: Tensor | None = None) -> Tensor:
    """The mean distance between the ends of both flows, in pixels.   (B, 2, H, W), (B, 2, H, W), (B, H, W) -> ()

    Mean of √((u - u*)² + (v - v*)²) over `valid` pixels. Pixels where the truth is NaN or infinite never count, and no
    mask: all others do. A flow that is NaN where the truth is known makes the error NaN.

    >>> flow, truth = torch.zeros(1, 2, 1, 3), torch.tensor([[[[3.0, 0.0, torch.inf]], [[4.0, 0.0, 0.0]]]])
    >>> endpoint_error(flow, truth), endpoint_error(flow, truth, torch.tensor([[[True, False, True]]]))
    (tensor(2.5000), tensor(5.))
    """
    alike = flow.ndim == 4 and flow.shape[1] == 2 and flow.shape == truth.shape
    if not alike or (valid is not None and valid.shape != flow[:, 0].shape):
        masked = "" if valid is None else f", a mask {tuple(valid.shape)}"
        raise UserError(
            f"endpoint error: flows are (B, 2, H, W) and a mask (B, H, W). These are {tuple(flow.shape)} and "
            f"{tuple(truth.shape)}{masked}."
        )
    counted = truth.isfinite().all(1)
    if valid is not None:
        counted = counted & valid.bool()
    if not bool(counted.any()):
        raise UserError("endpoint error: the truth has no valid pixel. Give a truth, or a mask, with one at least.")
    ends = (flow - truth).movedim(1, -1)[counted]  # before the length: its slope at an infinite end would be NaN
    return torch.linalg.vector_norm(ends, dim=-1).mean()
