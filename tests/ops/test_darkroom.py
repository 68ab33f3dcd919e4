"""Filters by name: what each does to ramps, bowls, dots and photographs whose answer is known."""

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.ops import darkroom

pytest.importorskip("kornia", reason="most filters are kornia's")


def ramp(slope=0.01, side=41):
    return (slope * torch.arange(float(side))).expand(1, 1, side, side).contiguous()


def bowl(side=41):
    place = torch.arange(float(side)) - side // 2
    return (place**2 + place[:, None] ** 2)[None, None] / 1000


MIDDLE = (..., slice(18, 23), slice(18, 23))
LIGHT = [darkroom.Gaussian(), darkroom.Box(), darkroom.Median(), darkroom.Sharpen()]
SIGNED = [darkroom.HighPass(), darkroom.Laplacian(), darkroom.Log(), darkroom.Dog(1.0)]


@pytest.mark.parametrize("filter", LIGHT, ids=lambda f: type(f).__name__)
def test_a_ramp_stays_a_ramp(filter):
    assert_close(filter(ramp())[MIDDLE], ramp()[MIDDLE])


@pytest.mark.parametrize("filter", SIGNED, ids=lambda f: type(f).__name__)
def test_a_ramp_has_no_second_derivative(filter):
    assert filter(ramp())[MIDDLE].abs().max() < 1e-5


@pytest.mark.parametrize("filter", [darkroom.Laplacian(), darkroom.Log(1.5)], ids=lambda f: type(f).__name__)
def test_second_derivatives_are_those_of_a_bowl(filter):
    assert_close(filter(bowl())[MIDDLE], torch.full((1, 1, 5, 5), 4 / 1000), rtol=1e-3, atol=0)


def test_the_difference_of_gaussians_is_nearly_a_laplacian():
    """Half of σ₂² - σ₁² times the second derivative."""
    expected = (1.6**2 - 1) / 2 * 4 / 1000
    assert_close(darkroom.Dog(1.0)(bowl())[MIDDLE], torch.full((1, 1, 5, 5), expected), rtol=0.03, atol=0)


@pytest.mark.parametrize("filter", [darkroom.Prewitt(), darkroom.Sobel()], ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("channels", [1, 3])
def test_slopes_are_in_brightness_a_pixel(filter, channels):
    for picture in (ramp(), ramp().mT):
        found = filter(picture.expand(1, channels, 41, 41))
        assert found.shape[1] == 1
        assert_close(found[MIDDLE], torch.full((1, 1, 5, 5), 0.01))
    assert darkroom.mean_slope(ramp(0.02)) == pytest.approx(0.02, rel=0.06)  # at the border slopes are halved


@pytest.mark.parametrize("size", [3, 9])
def test_the_median_of_strips_is_that_of_the_whole(size, monkeypatch):
    scipy = pytest.importorskip("scipy.ndimage")
    picture = torch.rand(1, 3, 37, 23, generator=torch.Generator().manual_seed(0))
    expected = torch.from_numpy(scipy.median_filter(picture.numpy(), (1, 1, size, size), mode="mirror"))
    assert_close(darkroom.Median(size)(picture), expected)
    monkeypatch.setattr(darkroom, "AT_ONCE", 1)
    assert_close(darkroom.Median(size)(picture), expected)


def test_a_mosaic_keeps_what_it_measured_and_odd_sides():
    picture = torch.rand(1, 3, 21, 33, generator=torch.Generator().manual_seed(0))
    back = darkroom.Bayer()(picture)
    assert back.shape == picture.shape
    kept = (back == picture).float().mean((0, 2, 3))
    assert_close(kept, torch.tensor([0.25, 0.5, 0.25]), rtol=0, atol=0.03)  # green is seen twice as often
    flat = torch.full((1, 3, 8, 8), 0.3)
    assert_close(darkroom.Bayer()(flat), flat)


@pytest.mark.parametrize("levels", [2, 5, 256])
def test_quantised_values_are_half_a_step_off_at_most(levels):
    picture = torch.rand(1, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    found = darkroom.Quantise(levels)(picture)
    assert (found - picture).abs().max() <= 0.5 / (levels - 1) + 1e-6
    assert len(found.unique()) <= levels


@pytest.mark.parametrize(
    ("filter", "complaint"),
    [
        (darkroom.Box(4), "size=4: a window needs a centre"),
        (darkroom.Median(99), "too small"),
        (darkroom.Gaussian(50.0), "too small"),
        (darkroom.Bayer(), "1 channel where 3 are needed"),
    ],
)
def test_what_does_not_fit_is_told(filter, complaint):
    with pytest.raises(UserError, match=complaint):
        filter(torch.rand(1, 1, 20, 20))
