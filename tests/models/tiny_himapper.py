"""Hi-Mapper on a backbone so small that a step takes no time."""

import torch
from torch import nn

from horosphere.models.himapper import HiMapper, HiMapperConfig

SIZES = (32, 16, 8, 4)
SMALL = {"leaves": 8, "levels": 3, "width": 16, "heads": 2}


class TinyNet(nn.Module):
    """The smallest thing with a map and a vector, of different widths."""

    map_width, width = 6, 10

    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 6, 4, 4), nn.Linear(6, 10)

    def features(self, x):
        feature_map = self.conv(x).relu()
        return feature_map, self.linear(feature_map.mean((2, 3)))


def tiny(awake=True, **changes):
    """awake: the encoding's last layer is not zero, as after some training."""
    model = HiMapper(TinyNet(), 5, HiMapperConfig(**{**SMALL, **changes}))
    if awake:
        nn.init.normal_(model.mapper.encoding.back[-1].weight)
    return model


def images(*shape):
    return torch.randn(*(shape or (2, 3, 16, 24)))
