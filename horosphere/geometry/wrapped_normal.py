"""The wrapped normal distribution: a Gaussian at the origin, wrapped onto the manifold and carried to the mean."""

import math

import torch
from torch import Tensor

from horosphere.geometry._shapes import different, size_of
from horosphere.geometry.manifold import Manifold


class WrappedNormal:
    """z = translate(lift(v), mean), v ~ N(0, std²). Densities are with respect to the Riemannian volume.

    mean: (..., d) a point; std: a number, (..., 1) or (..., d), in an orthonormal frame.

    >>> from horosphere.geometry import Lorentz
    >>> normal = WrappedNormal(Lorentz(), mean=torch.zeros(2), std=0.5)
    >>> z = normal.sample(1000, generator=torch.Generator().manual_seed(0))
    >>> z.shape, normal.log_prob(z).shape
    (torch.Size([1000, 2]), torch.Size([1000]))
    """

    def __init__(self, manifold: Manifold, mean: Tensor, std: Tensor | float):
        if isinstance(std, Tensor) and size_of(std) not in (0, 1, size_of(mean)):
            raise different("WrappedNormal", ["mean", "std"], [mean, std])
        self.manifold, self.mean, self.std = manifold, mean, std

    def rsample(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Points (*shape, ..., d), differentiable in mean and std.

        >>> from horosphere.geometry import Lorentz
        >>> mean = torch.zeros(2, requires_grad=True)
        >>> WrappedNormal(Lorentz(), mean, std=0.5).rsample(3).requires_grad
        True
        """
        mean = self.mean
        each = torch.broadcast_shapes(mean.shape, torch.as_tensor(self.std).shape)
        noise = torch.randn(*shape, *each, generator=generator, dtype=mean.dtype, device=mean.device)
        return self.manifold.translate(self.manifold.lift(self.std * noise), mean)

    def sample(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Points (*shape, ..., d), without gradient.

        >>> from horosphere.geometry import Lorentz
        >>> WrappedNormal(Lorentz(), torch.zeros(4, 2), std=0.5).sample(3).shape
        torch.Size([3, 4, 2])
        """
        with torch.no_grad():
            return self.rsample(*shape, generator=generator)

    def log_prob(self, z: Tensor) -> Tensor:
        """log N(v; 0, std²) - log|det lift(v)|, v = lower(translate(z, -mean)).   (..., d) -> (...)

        >>> from horosphere.geometry import Lorentz
        >>> L, mean = Lorentz(), torch.zeros(2)
        >>> z = L.exp0(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
        >>> WrappedNormal(L, mean, std=1.0).log_prob(z).round(decimals=3)  # -log 2π at the mean
        tensor([-1.8380, -2.4990])
        """
        v = self.manifold.lower(self.manifold.translate(z, -self.mean))
        std = torch.as_tensor(self.std, dtype=v.dtype, device=v.device).expand_as(v)
        gauss = -((v / std).square() / 2 + std.log() + math.log(2 * math.pi) / 2).sum(-1)
        return gauss - self.manifold.log_volume(v)
