"""The endpoint error is a mean of distances over the pixels whose truth is known."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from horosphere.errors import UserError
from horosphere.evaluate.flow import endpoint_error


def flows(seed=0):
    random = torch.Generator().manual_seed(seed)
    return (torch.randn(2, 2, 4, 5, generator=random, dtype=torch.float64) for _ in range(2))


def test_by_numpy():
    flow, truth = flows()
    assert float(endpoint_error(flow, truth)) == pytest.approx(
        np.hypot(*(flow - truth).movedim(1, 0).numpy()).mean(), abs=1e-12
    )
    mask = flow[:, 0] > 0
    apart = np.hypot(*(flow - truth).movedim(1, 0).numpy())[mask.numpy()]
    assert float(endpoint_error(flow, truth, mask)) == pytest.approx(apart.mean(), abs=1e-12)


@pytest.mark.parametrize("hole", [torch.nan, torch.inf, -torch.inf])
def test_a_truth_that_is_not_finite_does_not_decide(hole):
    flow, truth = flows()
    mask = torch.ones(2, 4, 5, dtype=torch.bool)
    mask[0, 1, 2] = False
    expected = endpoint_error(flow, truth, mask)
    truth[0, 1, 1, 2] = hole
    assert endpoint_error(flow, truth) == expected
    assert endpoint_error(flow, truth, torch.ones_like(mask)) == expected
    flow.requires_grad_()
    endpoint_error(flow, truth).backward()
    assert flow.grad.isfinite().all()
    assert flow.grad[0, :, 1, 2].eq(0).all()


def test_a_flow_that_is_not_finite_shows():
    flow, truth = flows()
    flow[0, 0, 0, 0] = torch.nan
    assert endpoint_error(flow, truth).isnan()


def test_gradients():
    flow, truth = flows()
    assert gradcheck(endpoint_error, (flow.requires_grad_(), truth))


def test_what_is_refused():
    flow, truth = flows()
    with pytest.raises(UserError, match=r"\(2, 2, 4, 5\) and \(2, 2, 4, 4\)"):
        endpoint_error(flow, truth[..., :4])
    with pytest.raises(UserError, match="mask"):
        endpoint_error(flow, truth, torch.ones(4, 5))
    with pytest.raises(UserError, match="no valid pixel"):
        endpoint_error(flow, truth * torch.nan)
