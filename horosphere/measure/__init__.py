"""Instruments: is the data tree-like, and does the embedding keep it so?"""

from horosphere.measure.delta import Delta, delta, delta_exact, delta_sampled
from horosphere.measure.distortion import Distortion, distortion
from horosphere.measure.radius import Radius, depth_correlation, radius, radius_by_group
from horosphere.measure.reconstruction import Reconstruction, reconstruction

__all__ = [
    "Delta",
    "Distortion",
    "Radius",
    "Reconstruction",
    "delta",
    "delta_exact",
    "delta_sampled",
    "depth_correlation",
    "distortion",
    "radius",
    "radius_by_group",
    "reconstruction",
]
