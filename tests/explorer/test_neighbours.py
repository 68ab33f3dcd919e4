"""What the page lists as neighbours is what `dist` says, for every point and in every geometry."""

import pytest
import torch

from horosphere.explorer.atlas import NEIGHBOURS, Atlas
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from horosphere.train.vectors import Vectors

COUNT = 500
GEOMETRIES = [Euclidean(), Lorentz(0.3), Lorentz(2.0), Poincare(1.0), Product((Lorentz(1.0), 2), (Euclidean(), 2))]
SPREADS = [(2, 0.5), (4, 0.1), (4, 1.0), (4, 2.0)]  # dimensions, and how far points lie out


@pytest.mark.parametrize("manifold", GEOMETRIES, ids=lambda manifold: type(manifold).__name__)
def test_ten_thousand_neighbour_lists_are_those_of_dist(manifold):
    """2,000 questions in each of five geometries, as the server asks: all right, in order, with these distances."""
    for seed, (dim, std) in enumerate(SPREADS):
        dim = 4 if isinstance(manifold, Product) else dim
        draws = torch.Generator().manual_seed(seed)
        points = manifold.random(COUNT, dim, std=std, generator=draws, dtype=torch.float64)
        atlas = Atlas("cloud", Vectors([str(i) for i in range(COUNT)], points, manifold))
        with torch.no_grad():
            truth = manifold.dist(atlas.points[:, None], atlas.points[None])
        truth.fill_diagonal_(torch.inf)
        wanted, order = truth.sort(dim=1, stable=True)
        found = [atlas.neighbours(node) for node in range(COUNT)]
        assert [one["numbers"] for one in found] == order[:, :NEIGHBOURS].tolist()
        distances = torch.tensor([one["distances"] for one in found], dtype=torch.float64)
        torch.testing.assert_close(distances, wanted[:, :NEIGHBOURS], rtol=1e-14, atol=0)
