"""Cross-correlation: sums by hand, scikit-image's match_template, what has one colour, gradients."""

import numpy as np
import pytest
import torch

from horosphere.data.photographs import read_photograph
from horosphere.errors import UserError
from horosphere.ops.correlation import correlated, normalised_correlation


def pictures(*shape, seed=0):
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_each_picture_is_correlated_with_its_own_template():
    search, template = pictures(3, 2, 6, 7), pictures(3, 2, 3, 2, seed=1)
    found = correlated(search, template)
    assert found.shape == (3, 4, 6)
    for b, y, x in np.ndindex(3, 4, 6):
        assert found[b, y, x].item() == pytest.approx((search[b, :, y : y + 3, x : x + 2] * template[b]).sum().item())


@pytest.mark.parametrize("channels", [1, 3])
def test_normalised_it_is_that_of_scikit_image(channels):
    feature = pytest.importorskip("skimage.feature", reason="its match_template is the oracle")
    photograph = read_photograph("builtin:coffee", longest=120)[..., :channels] / 255.0
    template = photograph[20:41, 30:47]
    wanted = feature.match_template(photograph, template)[..., 0]
    picture, part = (torch.from_numpy(t).permute(2, 0, 1)[None] for t in (photograph, template))
    found = normalised_correlation(picture, part)[0]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
    assert found[20, 30].item() == pytest.approx(1, abs=1e-12)
    in_fp32 = normalised_correlation(picture.float(), part.float())[0]
    np.testing.assert_allclose(in_fp32, wanted, rtol=0, atol=1e-3)


def test_light_and_contrast_change_nothing():
    search, template = pictures(2, 3, 12, 11), pictures(2, 3, 4, 5, seed=1)
    before = normalised_correlation(search, template)
    torch.testing.assert_close(normalised_correlation(0.2 * search + 3, 7 * template - 2), before, rtol=0, atol=1e-9)
    torch.testing.assert_close(normalised_correlation(search, -template), -before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_has_one_colour_correlates_with_nothing(dtype):
    one, some = torch.full((1, 3, 9, 9), 0.3, dtype=dtype), pictures(1, 3, 9, 9).to(dtype)
    assert (normalised_correlation(one, some[..., :4, :4]) == 0).all()
    assert (normalised_correlation(some, one[..., :4, :4]) == 0).all()
    half = torch.cat([one, some], 3)
    assert (normalised_correlation(half, some[..., :4, :4])[..., :6] == 0).all()


def test_gradients():
    search, template = pictures(1, 2, 5, 6).requires_grad_(), pictures(1, 2, 3, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(normalised_correlation, (search, template))


def test_of_no_pictures_there_are_no_answers():
    for function in (correlated, normalised_correlation):
        assert function(torch.rand(0, 3, 8, 9), torch.rand(0, 3, 2, 4)).shape == (0, 7, 6)


@pytest.mark.parametrize("function", [correlated, normalised_correlation])
@pytest.mark.parametrize(
    ("search", "template", "says"),
    [
        (torch.rand(2, 3, 8, 8), torch.rand(1, 3, 2, 2), "give each picture one"),
        (torch.rand(1, 3, 8, 8), torch.rand(1, 1, 2, 2), "as many channels"),
        (torch.rand(1, 3, 4, 8), torch.rand(1, 3, 5, 2), "no larger than it"),
        (torch.rand(1, 3, 4, 8), torch.rand(1, 3, 0, 2), "no larger than it"),
        (torch.rand(3, 8, 8), torch.rand(3, 2, 2), "give .B, C, H, W."),
        (torch.ones(1, 1, 8, 8, dtype=torch.uint8), torch.ones(1, 1, 2, 2, dtype=torch.uint8), "brightness from 0 to"),
    ],
)
def test_what_does_not_fit_is_named(function, search, template, says):
    with pytest.raises(UserError, match=says):
        function(search, template)
