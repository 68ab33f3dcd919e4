"""Weights in files, and weights to begin with."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from horosphere.errors import UserError, one_line
from horosphere.foreign import MODEL, Unreadable, read_tensors
from horosphere.geometry.manifold import manifolds_in

WEIGHTS = MODEL


def load_weights(network: nn.Module, file: Path) -> None:
    try:
        network.load_state_dict(read_tensors(file))
    except (Unreadable, RuntimeError) as error:
        how = "delete it to use the last checkpoint"
        raise UserError(f"{file}: damaged or foreign weights ({one_line(error)}); {how}") from error


def begin_with(network: nn.Module, given: Mapping[str, Tensor], run: str, missing: int = 0) -> None:
    """Weights of another run, all but `missing` of them (a classifier of other classes)."""
    own = network.state_dict()
    fitting = {name: value for name, value in given.items() if name in own and own[name].shape == value.shape}
    if len(fitting) < len(own) - missing or len(given) > len(own):
        what = f"{len(fitting)} of {len(own)} tensors fit"
        raise UserError(f"start={run}: a run of another network ({what}); give one of the same model and size")
    theirs, ours = manifolds_in(given), manifolds_in(own)
    for name, here in ours.items():
        if (there := theirs.get(name, here)) != here:
            raise UserError(f"start={run}: a run on {there}, and this network is on {here}; give one of the same")
    network.load_state_dict(fitting, strict=False)


def require_one_source(start: str | None, pretrained: bool) -> None:
    if start is not None and pretrained:
        raise UserError(f"start={start} and pretrained=true: weights come from one of them; leave out the other")
