"""Which parameters are points, which are decayed, and which are left alone."""

from collections.abc import Callable
from typing import Any

from torch import nn

from horosphere.errors import one_line
from horosphere.geometry import Manifold

NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


def param_groups(model: nn.Module, weight_decay: float = 0.0, **options: Any) -> list[dict[str, Any]]:
    """Parameter groups for Riemannian optimizers; `options` (lr, betas, …) go into every group.

    - points: what a module lists in `point_parameters` lies on its `manifold`. One group a manifold, never decayed.
    - decayed: matrices.
    - left alone: vectors and scalars (biases, norms, scales), everything of a norm or a manifold (curvature), tables of
      biases, tables with sparse gradients, and what a module names in `no_weight_decay()`, as timm's models do.

    >>> from horosphere.geometry import Lorentz
    >>> from horosphere.nn import Classifier, Embedding
    >>> model = nn.Sequential(Embedding(100, 2, Lorentz()), Classifier(2, 10, Lorentz()))
    >>> [(len(g["params"]), g["weight_decay"], g.get("manifold")) for g in param_groups(model, weight_decay=0.1)]
    [(1, 0.1, None), (1, 0.0, None), (1, 0.0, Lorentz(c=1))]
    """
    if not isinstance(model, nn.Module):
        what = one_line(model.__name__ if isinstance(model, type) else type(model).__name__)
        raise TypeError(f"param_groups: {what} is no model; give the model itself, as in param_groups(model)")
    points: dict[Manifold, list[nn.Parameter]] = {}
    decayed: list[nn.Parameter] = []
    alone: list[nn.Parameter] = []
    spared = named(model, "no_weight_decay")
    owned = [(m, name, p) for m in model.modules() for name, p in m.named_parameters(recurse=False) if p.requires_grad]
    # points first: a table tied to a head is a table, whichever of the two the model lists first
    owned.sort(key=lambda entry: not _is_point(entry[0], entry[1]))
    seen: set[int] = set()
    for module, name, p in owned:
        if id(p) in seen:
            continue
        seen.add(id(p))
        if _is_point(module, name):
            points.setdefault(module.manifold, []).append(p)  # type: ignore[arg-type]
        elif id(p) in spared or _is_left_alone(module, name, p):
            alone.append(p)
        else:
            decayed.append(p)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": alone, "weight_decay": 0.0},
    ]
    groups += [{"params": ps, "weight_decay": 0.0, "manifold": m} for m, ps in points.items()]
    return [{**g, **options} for g in groups if g["params"]]


def with_rate(
    groups: list[dict[str, Any]], chosen: Callable[[nn.Parameter], bool], lr_scale: float
) -> list[dict[str, Any]]:
    """The same groups, where `chosen` parameters are apart and learn `lr_scale` times as fast.

    >>> layers = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 4, bias=False))
    >>> groups = with_rate(param_groups(layers), lambda p: p is layers[1].weight, 10.0)
    >>> [(tuple(g["params"][0].shape), g.get("lr_scale")) for g in groups]
    [((3, 2), None), ((4, 3), 10.0)]
    """
    if lr_scale == 1:
        return groups
    apart = []
    for group in groups:
        fast = [p for p in group["params"] if chosen(p)]
        slow = [p for p in group["params"] if not chosen(p)]
        apart += [{**group, "params": slow}] if slow else []
        apart += [{**group, "params": fast, "lr_scale": lr_scale * group.get("lr_scale", 1.0)}] if fast else []
    return apart


def named(model: nn.Module, method: str) -> set[int]:
    """Ids of the parameters that modules name in `method()`, by the names they have within them.

    >>> from horosphere.nn.clustering import ClusterMixer, ClusterSizes
    >>> mixer = ClusterMixer(6, ClusterSizes(2, 4, map_size=8, windows=2, patch_centres=4, window_centres=1))
    >>> named(mixer, "scales") == {id(mixer.patch_scale)}
    True
    """
    ids: set[int] = set()
    for module in model.modules():
        if callable(names := getattr(module, method, None)):
            wanted = names()
            ids |= {id(p) for name, p in module.named_parameters() if name in wanted}
    return ids


def _is_point(module: nn.Module, name: str) -> bool:
    return name in getattr(module, "point_parameters", ()) and not module.manifold.flat  # type: ignore[union-attr]


def _is_left_alone(module: nn.Module, name: str, p: nn.Parameter) -> bool:
    # a scale of channels may have axes of length 1 behind it; a matrix of one column is a matrix
    is_vector = p.ndim < 2 or (p.ndim > 2 and sum(size > 1 for size in p.shape) < 2)
    is_bias = name.endswith(("bias", "bias_table"))
    return is_vector or is_bias or isinstance(module, (*NORMS, Manifold)) or getattr(module, "sparse", False)
