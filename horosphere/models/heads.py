"""Classifiers in any geometry on networks in flat space: features are lifted, logits are distances to hyperplanes.

In flat space they are torch's linear layer and torch's convolution, to the last bit.
"""

from torch import Tensor, nn

from horosphere.geometry import Manifold
from horosphere.nn import Classifier, ConvClassifier, Lift


def lifted_classifier(width: int, classes: int, manifold: Manifold) -> nn.Sequential:
    """Of vectors.   (..., width) -> (..., classes)

    >>> from horosphere.geometry import Lorentz
    >>> lifted_classifier(8, 3, Lorentz())(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """
    return nn.Sequential(Lift(manifold), Classifier(width, classes, manifold))


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
