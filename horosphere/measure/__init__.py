"""Instruments: is the data tree-like, does the embedding keep it so, and what happens inside a language model?"""

from horosphere.measure.delta import Delta, delta, delta_exact, delta_sampled
from horosphere.measure.distortion import Distortion, distortion
from horosphere.measure.exact import Exactness, exactness
from horosphere.measure.information import (
    conditional_entropy,
    entropy,
    entropy_by_sampling,
    joint_entropy,
    kl,
    kl_of_gaussians,
    mutual_information,
    pmi,
    self_information,
)
from horosphere.measure.radius import Radius, depth_correlation, radius, radius_by_group
from horosphere.measure.reconstruction import Reconstruction, reconstruction
from horosphere.measure.ricci import Ricci, ollivier_ricci, point_ricci
from horosphere.measure.tokens import (
    ExpertLoad,
    FrequencyBin,
    TokenRadius,
    attention_distance,
    expert_load,
    token_cosine,
    token_radius,
)

__all__ = [
    "Delta",
    "Distortion",
    "Exactness",
    "ExpertLoad",
    "FrequencyBin",
    "Radius",
    "Reconstruction",
    "Ricci",
    "TokenRadius",
    "attention_distance",
    "conditional_entropy",
    "delta",
    "delta_exact",
    "delta_sampled",
    "depth_correlation",
    "distortion",
    "entropy",
    "entropy_by_sampling",
    "exactness",
    "expert_load",
    "joint_entropy",
    "kl",
    "kl_of_gaussians",
    "mutual_information",
    "ollivier_ricci",
    "pmi",
    "point_ricci",
    "radius",
    "radius_by_group",
    "reconstruction",
    "self_information",
    "token_cosine",
    "token_radius",
]
