"""Classifiers in any geometry on networks in flat space: features are lifted, logits are distances to hyperplanes.

In flat space they are torch's linear layer and torch's convolution, to the last bit and by the same names.
Features of a network grow while it learns. So points are kept within REACH.
"""

from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Manifold
from horosphere.models.backbones import head_of
from horosphere.nn import Classifier, ConvClassifier, Lift
from horosphere.nn.first_call import settle

REACH = 8.0  # radii of curvature within which fp32 tells hyperplanes apart (`hyperplane_logits`)


class LiftedClassifier(Classifier):
    """Of vectors.   (..., in) -> (..., out)

    >>> import torch
    >>> from horosphere.geometry import Lorentz
    >>> LiftedClassifier(8, 3, Lorentz())(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(self, in_features: int, out_features: int, manifold: Manifold):
        super().__init__(in_features, out_features, manifold)
        self.lift = Lift(settle(self, manifold, makes=Euclidean(), reads=False), reach=REACH)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.lift(x))


class LiftedConvClassifier(ConvClassifier):
    """Of maps, a place each.   (B, C, H, W) -> (B, K, H, W)

    >>> import torch
    >>> from horosphere.geometry import Lorentz
    >>> LiftedConvClassifier(8, 3, Lorentz(), kernel_size=3)(torch.randn(2, 8, 5, 5)).shape
    torch.Size([2, 3, 5, 5])
    """

    def __init__(self, in_channels: int, classes: int, manifold: Manifold, kernel_size: int = 1):
        super().__init__(in_channels, classes, kernel_size, manifold, padding=kernel_size // 2)
        self.lift = Lift(settle(self, manifold, makes=Euclidean(), reads=False), reach=REACH)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.lift(x.movedim(1, -1)).movedim(-1, 1))


def put_head(network: nn.Module, manifold: Manifold) -> LiftedClassifier:
    """A lifted classifier in place of the network's own, which must be flat (Khrulkov et al. 2020).

    >>> from horosphere.geometry import Lorentz
    >>> from horosphere.models.backbones import create_backbone
    >>> network = create_backbone("resnet18", num_classes=10)
    >>> put_head(network, Lorentz()) is network.fc
    True
    """
    old = head_of(network)
    if not isinstance(old, nn.Linear) or not getattr(network, "manifold", Euclidean()).flat:
        raise UserError(f"{type(network).__name__}: a head needs a flat network with a linear classifier; leave it out")
    place = next(name for name, module in network.named_modules() if module is old)
    new = LiftedClassifier(old.in_features, old.out_features, manifold)
    network.set_submodule(place, new)
    return new
