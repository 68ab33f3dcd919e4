"""HoPE: what the paper proves of it, checked on attention's own scores."""

import math

import pytest
import torch
from torch.testing import assert_close

from horosphere.geometry import Lorentz
from horosphere.nn import Attention, rotary_angles, rotate
from horosphere.nn.attention import slot_heads

L = Lorentz(1.0)
DIM = 64


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def scores(q, k, queries, keys):
    """<q at its position, k at its position> for positions (n,), (m,).   (DIM,), (DIM,) -> (n, m)"""

    def placed(u, positions, query):
        angles = rotary_angles(positions.unsqueeze(0), DIM, still=1, dtype=torch.float64)
        return slot_heads(u.expand(1, len(positions), 1, DIM), L, angles, query=query)[0, :, 0]

    return placed(q, queries, True) @ placed(k, keys, False).T


def vector():
    return torch.randn(DIM, dtype=torch.float64)


def test_only_relative_positions_matter():
    q, k = vector(), vector()
    here = scores(q, k, torch.arange(10), torch.arange(10))
    there = scores(q, k, torch.arange(500, 510), torch.arange(500, 510))
    assert_close(here, there, atol=1e-9, rtol=1e-9)


def test_time_stays_and_points_stay_on_the_hyperboloid():
    u = vector()
    angles = rotary_angles(torch.arange(50).unsqueeze(0), DIM, still=1, dtype=torch.float64)
    turned = slot_heads(u.expand(1, 50, 1, DIM), L, angles)[0, :, 0]
    assert_close(turned[:, 0], turned[:1, 0].expand(50))
    assert_close(turned[:, 1:].square().sum(-1) - turned[:, 0].square(), torch.full((50,), -1.0, dtype=torch.float64))


def test_scores_decay_with_distance_in_the_long_run():
    """A token and a like one: near, middle and far windows of distance, averaged over tokens."""
    windows = [(0, 16), (64, 512), (1024, 4096)]
    mean = []
    for low, high in windows:
        distances = torch.arange(low, high)
        mean.append(
            torch.stack(
                [
                    scores(q, q, distances, torch.zeros(1, dtype=torch.long)).mean()
                    for q in (vector() for _ in range(20))
                ]
            ).mean()
        )
    assert mean[0] > mean[1] > mean[2]


@pytest.mark.parametrize("distance", [0, 3, 50, 700])
def test_the_maximum_can_be_at_any_distance(distance):
    """The key that q, turned forward by the distance, would be: its score is largest exactly there."""
    q = vector()
    angles = rotary_angles(torch.tensor([[distance]]), DIM, still=1, dtype=torch.float64)
    k = rotate(q.view(1, 1, 1, DIM), angles).flatten()
    # at its own distance the two coincide
    own = scores(q, k, torch.arange(distance, distance + 1), torch.arange(0, 1))
    assert_close(own, torch.full((1, 1), -1.0, dtype=torch.float64))  # <x, x> = -1: nothing is larger
    others = scores(q, k, torch.arange(1000), torch.zeros(1, dtype=torch.long)).flatten()
    assert others.argmax() == distance


@pytest.mark.parametrize("offset", [0, 1, 5])
def test_attention_learns_to_look_at_itself_or_a_fixed_way_back(offset):
    """Diagonal and off-diagonal patterns: the layer copies the token `offset` places before, of random tokens."""
    attention = Attention(32, 1, 32, Lorentz(1.0))
    value = torch.randn(32)
    optimizer = torch.optim.Adam(attention.parameters(), lr=0.01)
    positions = torch.arange(16).unsqueeze(0)
    angles = rotary_angles(positions, 32, theta=100.0, still=1)
    losses = []
    for _ in range(500):
        mark = torch.randn(8, 16, 1)
        x = attention.manifold.slots.reading(
            torch.cat((torch.zeros(8, 16, 1), 3 * torch.ones(8, 16, 1), mark * value[:30] / 4), -1)
        )
        wanted = torch.zeros_like(mark)
        wanted[:, offset:] = mark[:, : 16 - offset]
        loss = (attention(x, angles)[..., 1:2] - wanted)[:, offset:].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.25 * losses[0]


def test_flat_rotation_is_the_usual_one():
    """Against complex multiplication."""
    x = torch.randn(2, 7, 3, 8, dtype=torch.float64)
    positions = torch.arange(7).expand(2, 7)
    turned = rotate(x, rotary_angles(positions, 8, theta=100.0, dtype=torch.float64))
    z = torch.complex(x[..., :4], x[..., 4:])
    angle = torch.tensor([[p * 100 ** (-j / 4) for j in range(4)] for p in range(7)], dtype=torch.float64)
    expected = z * torch.polar(torch.ones_like(angle), angle).unsqueeze(1)
    assert_close(turned, torch.cat((expected.real, expected.imag), -1))


@pytest.mark.parametrize(("dim", "still"), [(7, 0), (2, 1)])
def test_too_few_dimensions_are_refused(dim, still):
    with pytest.raises(ValueError, match="even number"):
        rotary_angles(torch.arange(3).unsqueeze(0), dim, still=still)


def test_no_angles_no_rotation():
    x = torch.randn(1, 2, 3, 4)
    assert rotate(x, None) is x
    assert math.isfinite(x.sum())
