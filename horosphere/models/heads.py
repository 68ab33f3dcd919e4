"""Classifiers in any geometry on networks in flat space: features are lifted, logits are distances to hyperplanes.

In flat space they are torch's linear layer and torch's convolution, to the last bit.
"""

from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Manifold
from horosphere.models.backbones import head_of
from horosphere.nn import Classifier, ConvClassifier, Lift


def lifted_classifier(width: int, classes: int, manifold: Manifold) -> nn.Sequential:
    """Of vectors.   (..., width) -> (..., classes)

    >>> from horosphere.geometry import Lorentz
    >>> lifted_classifier(8, 3, Lorentz())(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """
    return nn.Sequential(Lift(manifold), Classifier(width, classes, manifold))


def put_head(network: nn.Module, manifold: Manifold) -> nn.Module:
    """A lifted classifier in place of the network's own, which must be flat (Khrulkov et al. 2020).

    >>> from horosphere.geometry import Lorentz
    >>> from horosphere.models.backbones import create_backbone
    >>> network = create_backbone("resnet18", num_classes=10)
    >>> put_head(network, Lorentz()) is network.fc
    True
    >>> network.fc
    Sequential(
      (0): Lift(Lorentz(c=1))
      (1): Classifier(in_features=512, out_features=10, bias=True)
    )
    """
    old = head_of(network)
    if not isinstance(old, nn.Linear) or not getattr(network, "manifold", Euclidean()).flat:
        raise UserError(
            f"{type(network).__name__}: a head needs a flat network that ends in a linear layer; leave it out"
        )
    place = next(name for name, module in network.named_modules() if module is old)
    new = lifted_classifier(old.in_features, old.out_features, manifold)
    network.set_submodule(place, new)
    return new


class LiftedConvClassifier(nn.Module):
    """Of maps, a place each.   (B, width, H, W) -> (B, classes, H, W)

    >>> from horosphere.geometry import Lorentz
    >>> LiftedConvClassifier(8, 3, Lorentz(), kernel=3)(torch.randn(2, 8, 5, 5)).shape
    torch.Size([2, 3, 5, 5])
    """

    def __init__(self, width: int, classes: int, manifold: Manifold, kernel: int = 1):
        super().__init__()
        self.lift = Lift(manifold)
        self.classifier = ConvClassifier(width, classes, kernel, manifold, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.lift(x.movedim(1, -1)).movedim(-1, 1))
        return logits
