"""The classic convolutional networks, each in any geometry: lenet, alexnet, vgg11, nin, googlenet, resnet18, densenet.

In flat space they are the classics. VGG-11 and ResNet-18 have torchvision's keys and logits; AlexNet, GoogLeNet and
DenseNet are those of textbooks, and torchvision's are other networks. On a curved manifold pixels are the free
coordinates of points, every layer is its curved form, and the last one measures distances to hyperplanes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.models.config import InAnyGeometry
from horosphere.nn import (
    Activation,
    AvgPool2d,
    BatchNorm2d,
    Classifier,
    Conv2d,
    Dropout,
    Flatten,
    GlobalAvgPool2d,
    Linear,
    Lower,
    MaxPool2d,
    Residual,
    concat,
)
from horosphere.nn.axes import point_along
from horosphere.settings import Decay, Few, Positive, Size


@dataclass(frozen=True, kw_only=True)
class ConvNetConfig(InAnyGeometry):
    """What all of them have."""

    breadth: Positive = 1.0  # channels and units, as a share of the published ones
    # torch: as layers of torch begin; xavier: uniform, by both sides of a layer; kaiming: normal, by the outgoing side
    init: Literal["torch", "xavier", "kaiming"] = "torch"

    def of(self, *published: int) -> tuple[int, ...]:
        """So many channels for these published ones."""
        return tuple(max(1, round(self.breadth * n)) for n in published)


class Shape(NamedTuple):
    """Of the pictures and the answers that a network is built for."""

    channels: int = 3
    classes: int = 1000
    size: int = 224  # pixels a side


class ConvNet(nn.Module):
    """Pixels, read as free coordinates of points; layers that make one point of a picture; logits of it.

    (B, C, H, W) -> (B, classes)
    """

    def __init__(self, manifold: Manifold, features: list[nn.Module], classifier: list[nn.Module]):
        super().__init__()
        self.manifold = manifold
        self.features, self.classifier = nn.Sequential(*features), nn.Sequential(*classifier)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(point_along(x, self.manifold, 1)))
        return logits


def begun(network: nn.Module, init: str) -> nn.Module:
    """The network with the start that its configuration names. Weights of times stay 0."""
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)) and init == "xavier":
            nn.init.xavier_uniform_(layer.weight)
        elif isinstance(layer, nn.Conv2d) and init == "kaiming":
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        else:
            continue
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return network


def side_after(size: int, name: str, *steps: tuple[int, int, int]) -> int:
    """The side of a map after layers of this (kernel, stride, padding)."""
    side = size
    for kernel, stride, padding in steps:
        side = (side + 2 * padding - kernel) // stride + 1
        if side < 1:
            raise UserError(f"size={size}: nothing would be left of such small pictures in {name}; use larger ones")
    return side


def relu(m: Manifold) -> Activation:
    return Activation("relu", m, dim=1)


# -- LeNet ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LeNetConfig(ConvNetConfig):
    activation: Literal["sigmoid", "tanh", "relu"] = "sigmoid"
    pool: Literal["max", "avg"] = "avg"  # avg: the original


def lenet(shape: Shape, config: LeNetConfig) -> nn.Module:
    """LeNet-5: two convolutions of 5 x 5, three dense layers (LeCun et al. 1998).

    With a sigmoid it does not learn from torch's own start: use init="xavier" and Adam.

    >>> network = lenet(Shape(1, 10, 28), LeNetConfig(geometry="lorentz"))
    >>> sum(p.numel() for name, p in network.named_parameters() if "time" not in name)
    61706
    """
    m, (a, b, c, d) = config.manifold(), config.of(6, 16, 120, 84)
    side = side_after(shape.size, "LeNet", (5, 1, 2), (2, 2, 0), (5, 1, 0), (2, 2, 0))

    def active() -> nn.Module:
        return Activation(config.activation, m, dim=1)

    def pool() -> nn.Module:
        return AvgPool2d(2, m, stride=2) if config.pool == "avg" else MaxPool2d(2, m, stride=2)

    features = [
        *(Conv2d(shape.channels, a, 5, m, padding=2), active(), pool()),
        *(Conv2d(a, b, 5, m), active(), pool()),
        Flatten(m),
    ]
    classifier = [Linear(b * side**2, c, m), active(), Linear(c, d, m), active(), Classifier(d, shape.classes, m)]
    return begun(ConvNet(m, features, classifier), config.init)


# -- AlexNet and VGG --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DenseTopConfig(ConvNetConfig):
    """Of networks that end in three wide dense layers."""

    dropout: Decay = 0.5  # before and between the last dense layers


def alexnet(shape: Shape, config: DenseTopConfig) -> nn.Module:
    """Five convolutions, three dense layers (Krizhevsky et al. 2012); torchvision's has other widths.

    >>> import torch
    >>> alexnet(Shape(1, 10, 96), DenseTopConfig(breadth=0.1))(torch.zeros(2, 1, 96, 96)).shape
    torch.Size([2, 10])
    """
    m, (a, b, c, d, e, units) = config.manifold(), config.of(96, 256, 384, 384, 256, 4096)
    pool, same = (3, 2, 0), (3, 1, 1)
    side = side_after(shape.size, "AlexNet", (11, 4, 0), pool, (5, 1, 2), pool, same, same, same, pool)
    features = [
        *(Conv2d(shape.channels, a, 11, m, stride=4), relu(m), MaxPool2d(3, m, stride=2)),
        *(Conv2d(a, b, 5, m, padding=2), relu(m), MaxPool2d(3, m, stride=2)),
        *(Conv2d(b, c, 3, m, padding=1), relu(m)),
        *(Conv2d(c, d, 3, m, padding=1), relu(m)),
        *(Conv2d(d, e, 3, m, padding=1), relu(m), MaxPool2d(3, m, stride=2)),
        Flatten(m),
    ]
    return begun(ConvNet(m, features, dense_top(e * side**2, units, shape.classes, m, config)), config.init)


def dense_top(width: int, units: int, classes: int, m: Manifold, config: DenseTopConfig) -> list[nn.Module]:
    """Three dense layers, the last of which are the hyperplanes of classes."""
    drop = config.dropout
    return [
        *(Linear(width, units, m), relu(m), Dropout(drop, m)),
        *(Linear(units, units, m), relu(m), Dropout(drop, m)),
        Classifier(units, classes, m),
    ]


VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # channels of the convolutions between two pools


def vgg11(shape: Shape, config: DenseTopConfig) -> nn.Module:
    """VGG-11: stages of 3 x 3 convolutions, each ended by a pool (Simonyan & Zisserman 2015). torchvision's keys.

    >>> network = vgg11(Shape(1, 10, 32), DenseTopConfig(breadth=0.125))
    >>> [name for name in network.state_dict()][:2]
    ['features.0.weight', 'features.0.bias']
    """
    m, (units,) = config.manifold(), config.of(4096)
    side = side_after(shape.size, "VGG-11", *((2, 2, 0) for _ in VGG11))
    features: list[nn.Module] = []
    before = shape.channels
    for stage in VGG11:
        for width in config.of(*stage):
            features += [Conv2d(before, width, 3, m, padding=1), relu(m)]
            before = width
        features.append(MaxPool2d(2, m, stride=2))
    features.append(Flatten(m))
    return begun(ConvNet(m, features, dense_top(before * side**2, units, shape.classes, m, config)), config.init)


# -- Network in network -----------------------------------------------------------------------------------------------


def nin(shape: Shape, config: DenseTopConfig) -> nn.Module:
    """Network in network: each convolution is followed by two of 1 x 1; a map of each class is averaged (Lin+ 2014).

    There are no dense layers. Logits are the coordinates of the averaged point, `lower`ed. The last biases begin at 1,
    as AlexNet's do before a relu: a class whose map is 0 everywhere has no gradient, and half of them would begin so.

    >>> import torch
    >>> nin(Shape(1, 10, 96), DenseTopConfig(breadth=0.1, geometry="poincare"))(torch.zeros(2, 1, 96, 96)).shape
    torch.Size([2, 10])
    """
    m, (a, b, c) = config.manifold(), config.of(96, 256, 384)
    side_after(shape.size, "NiN", (11, 4, 0), (3, 2, 0), (5, 1, 2), (3, 2, 0), (3, 1, 1), (3, 2, 0))

    def stage(before: int, width: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
        ones = (layer for _ in range(2) for layer in (Conv2d(width, width, 1, m), relu(m)))
        return [Conv2d(before, width, kernel, m, stride, padding), relu(m), *ones]

    features = [
        *(*stage(shape.channels, a, 11, stride=4), MaxPool2d(3, m, stride=2)),
        *(*stage(a, b, 5, padding=2), MaxPool2d(3, m, stride=2)),
        *(*stage(b, c, 3, padding=1), MaxPool2d(3, m, stride=2)),
        Dropout(config.dropout, m, dim=1),
        *stage(c, shape.classes, 3, padding=1),
        GlobalAvgPool2d(m),
    ]
    network = begun(ConvNet(m, features, [Lower(m)]), config.init)
    last = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)][-1]
    nn.init.ones_(cast(Tensor, last.bias))
    return network


# -- GoogLeNet --------------------------------------------------------------------------------------------------------


class Inception(nn.Module):
    """Four ways side by side: 1 x 1; 1 x 1 then 3 x 3; 1 x 1 then 5 x 5; pool then 1 x 1.   (B, C, H, W)

    widths: their channels n₁, n₂₁, n₂₂, n₃₁, n₃₂, n₄; so n₁ + n₂₂ + n₃₂ + n₄ come out.
    """

    def __init__(self, before: int, widths: tuple[int, ...], m: Manifold):
        super().__init__()
        one, to_three, three, to_five, five, pooled = widths
        self.manifold, self.width = m, one + three + five + pooled
        self.ways = nn.ModuleList(
            nn.Sequential(*layers)
            for layers in (
                (Conv2d(before, one, 1, m), relu(m)),
                (Conv2d(before, to_three, 1, m), relu(m), Conv2d(to_three, three, 3, m, padding=1), relu(m)),
                (Conv2d(before, to_five, 1, m), relu(m), Conv2d(to_five, five, 5, m, padding=2), relu(m)),
                (MaxPool2d(3, m, stride=1, padding=1), Conv2d(before, pooled, 1, m), relu(m)),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return concat([way(x) for way in self.ways], self.manifold, dim=1)


INCEPTIONS = (  # widths of the blocks between two pools, from table 1 of the paper
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def googlenet(shape: Shape, config: ConvNetConfig) -> nn.Module:
    """GoogLeNet without norms and auxiliary classifiers (Szegedy et al. 2015); torchvision's has 3 x 3 for the 5 x 5.

    >>> network = googlenet(Shape(1, 10, 64), ConvNetConfig(breadth=0.25))
    >>> network.features[-2].width  # of the last block
    256
    """
    m, of = config.manifold(), config.of
    a, b = of(64, 192)

    def pool() -> nn.Module:
        return MaxPool2d(3, m, stride=2, padding=1)

    features: list[nn.Module] = [
        *(Conv2d(shape.channels, a, 7, m, stride=2, padding=3), relu(m), pool()),
        *(Conv2d(a, a, 1, m), relu(m), Conv2d(a, b, 3, m, padding=1), relu(m)),
    ]
    before = b
    for stage in INCEPTIONS:
        features.append(pool())
        for widths in stage:
            block = Inception(before, of(*widths), m)
            features.append(block)
            before = block.width
    features.append(GlobalAvgPool2d(m))
    return begun(ConvNet(m, features, [Classifier(before, shape.classes, m)]), config.init)


# -- ResNet -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NormedConfig(ConvNetConfig):
    # centred: around the centroid of a batch; free: torch's, of free coordinates, as fast as in flat space
    norm: Literal["centred", "free"] = "free"


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(NormedConfig):
    init: Literal["torch", "xavier", "kaiming"] = "kaiming"
    bias: bool = False  # of convolutions; textbooks have it, and no norm on shortcuts
    shortcut_norm: bool = True  # a norm where a shortcut changes the width


class BasicBlock(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))); x goes through a 1 x 1 convolution where the width changes."""

    def __init__(self, before: int, width: int, stride: int, m: Manifold, config: ResNetConfig):
        super().__init__()
        self.conv1 = Conv2d(before, width, 3, m, stride, padding=1, bias=config.bias)
        self.bn1 = BatchNorm2d(width, m, form=config.norm)
        self.relu = relu(m)
        self.conv2 = Conv2d(width, width, 3, m, padding=1, bias=config.bias)
        self.bn2 = BatchNorm2d(width, m, form=config.norm)
        self.join = Residual(width, m, form="additive")
        self.downsample: nn.Sequential | None = None
        if stride > 1 or before != width:
            norm = [BatchNorm2d(width, m, form=config.norm)] if config.shortcut_norm else []
            self.downsample = nn.Sequential(Conv2d(before, width, 1, m, stride, bias=config.bias), *norm)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        kept = x if self.downsample is None else self.downsample(x)
        joined = self.join(y.movedim(1, -1), kept.movedim(1, -1)).movedim(-1, 1)
        out: Tensor = self.relu(joined)
        return out


SMALL = 64  # pixels


class ResNet(nn.Module):
    """ResNet-18: 17 convolutions in eight blocks and a stem, one dense layer. torchvision's keys and, flat, its logits.

    Pictures of up to 64 pixels have a stem of 3 x 3 without stride and pool, as is usual there.
    """

    def __init__(self, shape: Shape, config: ResNetConfig):
        super().__init__()
        m, widths = config.manifold(), config.of(64, 128, 256, 512)
        kernel, stride, padding = (3, 1, 1) if shape.size <= SMALL else (7, 2, 3)
        self.conv1 = Conv2d(shape.channels, widths[0], kernel, m, stride, padding, bias=config.bias)
        self.bn1 = BatchNorm2d(widths[0], m, form=config.norm)
        self.relu = relu(m)
        self.maxpool = nn.Identity() if shape.size <= SMALL else MaxPool2d(3, m, stride=2, padding=1)

        def stage(before: int, width: int, stride: int) -> nn.Sequential:
            return nn.Sequential(BasicBlock(before, width, stride, m, config), BasicBlock(width, width, 1, m, config))

        self.layer1 = stage(widths[0], widths[0], 1)
        self.layer2 = stage(widths[0], widths[1], 2)
        self.layer3 = stage(widths[1], widths[2], 2)
        self.layer4 = stage(widths[2], widths[3], 2)
        self.avgpool = GlobalAvgPool2d(m)
        self.fc = Classifier(widths[3], shape.classes, m)
        self.manifold = m

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(point_along(x, self.manifold, 1)))))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        logits: Tensor = self.fc(self.avgpool(x))
        return logits


def resnet18(shape: Shape, config: ResNetConfig) -> nn.Module:
    """ResNet-18 (He et al. 2016).

    >>> network = resnet18(Shape(3, 1000), ResNetConfig())
    >>> sum(p.numel() for p in network.parameters())
    11689512
    """
    return begun(ResNet(shape, config), config.init)


# -- DenseNet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DenseNetConfig(NormedConfig):
    growth: Size = 32  # channels that every convolution adds, before `breadth`
    depth: Few = 4  # convolutions in each of the four blocks


class DenseBlock(nn.Module):
    """Each norm, relu and convolution reads all that came before it, side by side.   (B, C, H, W)"""

    def __init__(self, before: int, growth: int, depth: int, m: Manifold, norm: Literal["centred", "free"]):
        super().__init__()
        self.manifold = m
        self.layers = nn.ModuleList(
            nn.Sequential(BatchNorm2d(width, m, form=norm), relu(m), Conv2d(width, growth, 3, m, padding=1))
            for width in range(before, before + depth * growth, growth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = concat((x, layer(x)), self.manifold, dim=1)
        return x


def densenet(shape: Shape, config: DenseNetConfig) -> nn.Module:
    """Four dense blocks with transitions that halve width and side (Huang et al. 2017); densenet121 is another.

    >>> network = densenet(Shape(1, 10), DenseNetConfig())
    >>> sum(p.numel() for p in network.parameters())
    758226
    """
    m, form, (before, growth) = config.manifold(), config.norm, config.of(64, config.growth)
    side_after(shape.size, "DenseNet", (7, 2, 3), (3, 2, 1), *((2, 2, 0) for _ in range(3)))
    stem = Conv2d(shape.channels, before, 7, m, stride=2, padding=3)
    features = [stem, BatchNorm2d(before, m, form=form), relu(m), MaxPool2d(3, m, stride=2, padding=1)]
    for number in range(4):
        features.append(DenseBlock(before, growth, config.depth, m, form))
        before += config.depth * growth
        features += [BatchNorm2d(before, m, form=form), relu(m)]
        if number < 3:
            features += [Conv2d(before, before // 2, 1, m), AvgPool2d(2, m, stride=2)]
            before //= 2
    features.append(GlobalAvgPool2d(m))
    return begun(ConvNet(m, features, [Classifier(before, shape.classes, m)]), config.init)


# -- by name ----------------------------------------------------------------------------------------------------------

CONVNETS: dict[str, tuple[Callable[..., nn.Module], type[ConvNetConfig]]] = {
    "lenet": (lenet, LeNetConfig),
    "alexnet": (alexnet, DenseTopConfig),
    "vgg11": (vgg11, DenseTopConfig),
    "nin": (nin, DenseTopConfig),
    "googlenet": (googlenet, ConvNetConfig),
    "resnet18": (resnet18, ResNetConfig),
    "densenet": (densenet, DenseNetConfig),
}


def convnet(name: str, shape: Shape, changes: dict[str, Any]) -> nn.Module:
    """The network of this name, with changes of its configuration.

    >>> convnet("lenet", Shape(1, 10, 28), {"geometry": "lorentz", "curvature": 0.5}).manifold
    Lorentz(c=0.5)
    """
    build, configuration = CONVNETS[name]
    return build(shape, configuration(**changes))
