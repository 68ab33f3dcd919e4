"""Backbones of timm, torchvision and this package behind one face: a last map, a vector, a pyramid of maps."""

import difflib
import inspect
import math
from collections import Counter
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.geometry import Euclidean, Manifold
from horosphere.models.convnets import CONVNETS, SMALL, Shape, convnet
from horosphere.models.hcformer import HCFormer, hcformer_config

HCFORMER = "hcformer"  # what names of models/hcformer.py's begin with
FLAT = Euclidean()  # what models without a manifold live in
LEVELS = 4  # resolutions of a pyramid, the coarsest ones


class Backbone(Protocol):
    """What models here need of a module: its last map, the vector a classifier would read, and their widths.

    Dense tasks need `pyramid` as well.
    """

    map_width: int
    width: int

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 3, H, W) -> (B, map_width, h, w), (B, width)"""
        ...

    def pyramid(self, x: Tensor) -> list[Tensor]:
        """The last map of each resolution, finest first; a plain transformer has only one.

        (B, 3, H, W) -> [(B, C_i, H_i, W_i)]
        """
        ...


WRAP = "wrap it in a module with features(x) -> (map, vector), map_width and width"


class TimmBackbone(nn.Module):
    """A model of timm with `forward_features` and `forward_head`, in any layout: NCHW, NHWC, tokens with CLS or not."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        self.map_width: int = model.num_features
        self.width: int = getattr(model, "head_hidden_size", None) or model.num_features

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out = self.model.forward_features(x)
        return self._map(out, x), self.model.forward_head(out, pre_logits=True)

    def pyramid(self, x: Tensor) -> list[Tensor]:
        if not (hasattr(self.model, "forward_intermediates") and hasattr(self.model, "feature_info")):
            return [self.features(x)[0]]
        last = {level["reduction"]: index for index, level in enumerate(self.model.feature_info)}
        maps: list[Tensor] = self.model.forward_intermediates(
            x, indices=list(last.values())[-LEVELS:], norm=True, intermediates_only=True
        )
        return maps

    def no_weight_decay(self) -> set[str]:
        names = self.model.no_weight_decay() if hasattr(self.model, "no_weight_decay") else set()
        return {f"model.{name}" for name in names}

    def _map(self, out: Any, x: Tensor) -> Tensor:
        if isinstance(out, Tensor) and out.ndim == 4:
            channels_last = getattr(self.model, "output_fmt", "NCHW") == "NHWC" or out.shape[1] != self.map_width
            return out.permute(0, 3, 1, 2) if channels_last else out
        if isinstance(out, Tensor) and out.ndim == 3:
            patch = getattr(getattr(self.model, "patch_embed", None), "patch_size", None)
            rows, columns = (patch, patch) if isinstance(patch, int) else patch or (1, 1)
            # some models have a CLS token and do not say so
            prefixes = [self.model.num_prefix_tokens] if hasattr(self.model, "num_prefix_tokens") else [0, 1]
            by_patches = (-(-x.shape[2] // rows), -(-x.shape[3] // columns))  # a patch at the edge is filled up
            for prefix in prefixes:
                places = out[:, prefix:]
                side = math.isqrt(places.shape[1])
                for height, width in (by_patches, (side, side)):
                    if height * width == places.shape[1]:
                        return places.mT.unflatten(2, (height, width))
        raise UserError(f"{type(self.model).__name__} has no feature map at its end: {WRAP}")


class PooledBackbone(nn.Module):
    """A trunk whose map (NCHW) is averaged, then a neck (a norm, a hidden layer) before the classifier."""

    def __init__(self, trunk: nn.Module, neck: nn.Module, map_width: int, width: int):
        super().__init__()
        self.trunk, self.neck, self.map_width, self.width = trunk, neck, map_width, width

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        feature_map = self.trunk(x)
        return feature_map, self.neck(feature_map.mean((2, 3), keepdim=True)).flatten(1)

    def pyramid(self, x: Tensor) -> list[Tensor]:
        maps: dict[tuple[int, ...], Tensor] = {}  # the last map of each resolution
        channels_last = False
        for layer in _layers(self.trunk):
            x = layer(x)
            if type(layer).__name__ == "Permute":  # torchvision's Swin has its channels last, from start to end
                channels_last = layer.dims == [0, 2, 3, 1]
            now = x.permute(0, 3, 1, 2) if channels_last else x
            maps[tuple(now.shape[2:])] = now
        return list(maps.values())[-LEVELS:]


def _layers(module: nn.Module) -> list[nn.Module]:
    """The layers that nested `Sequential`s call, in order."""
    if type(module) is not nn.Sequential:
        return [module]
    return [layer for child in module.children() for layer in _layers(child)]


class TorchvisionViT(nn.Module):
    """torchvision's VisionTransformer: the tokens after CLS are the map.

    Position embeddings of other sizes are interpolated, bicubically.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        self.map_width = self.width = model.hidden_dim

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        patches = self.model.conv_proj(x)
        height, width = patches.shape[2:]
        tokens = torch.cat((self.model.class_token.expand(x.shape[0], -1, -1), patches.flatten(2).mT), 1)
        encoder = self.model.encoder
        tokens = encoder.ln(encoder.layers(encoder.dropout(tokens + self._places(height, width))))
        return tokens[:, 1:].mT.unflatten(2, (height, width)), tokens[:, 0]

    def pyramid(self, x: Tensor) -> list[Tensor]:
        return [self.features(x)[0]]

    def _places(self, height: int, width: int) -> Tensor:
        """Position embeddings of CLS and the map.   -> (1, 1 + height·width, C)"""
        known: Tensor = self.model.encoder.pos_embedding
        side = math.isqrt(known.shape[1] - 1)
        if (height, width) == (side, side):
            return known
        grid = F.interpolate(
            known[:, 1:].mT.unflatten(2, (side, side)).float(), (height, width), mode="bicubic", antialias=True
        )
        return torch.cat((known[:, :1], grid.flatten(2).mT.to(known.dtype)), 1)


def create_backbone(
    name: str, num_classes: int, pretrained: bool = False, any_size: bool = False, **changes: Any
) -> nn.Module:
    """The model of this name: "timm:…", "torchvision:…"; "hcformer-…" or a classic, with changes of its configuration.

    Nothing is fetched unless `pretrained`. any_size: transformers of timm that can take pictures of any size do so.

    >>> model = create_backbone("hcformer-nano-32", num_classes=10, curvature=2.0)
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    library, _, model = name.partition(":") if ":" in name else ("torchvision", "", name)
    if name.startswith(HCFORMER):
        if pretrained:
            raise UserError(f"{name} has no published weights: leave out pretrained")
        return HCFormer(hcformer_config(name, num_classes=num_classes, **changes))
    if name in CONVNETS and not pretrained:
        return convnet(name, Shape(classes=num_classes), changes)
    if changes:
        raise UserError(f"{min(changes)}={changes[min(changes)]}: a setting of {HCFORMER}; {name} has none of its own")
    try:
        if library == "timm":
            return _create_timm(name, model, num_classes, pretrained, any_size)
        if library == "torchvision":
            return _create_torchvision(name, model, num_classes, pretrained)
    except OSError as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{name}: its weights cannot be fetched ({reason}); leave out pretrained for random ones"
        ) from error
    raise UserError(f'backbone "{name}": say whose it is, as in timm:resnet50, torchvision:resnet50 or hcformer-nano')


def classifier(
    name: str, classes: int, size: int, changes: dict[str, Any], pretrained: bool = False, channels: int = 3
) -> nn.Module:
    """A network for pictures of size x size.   (B, channels, size, size) -> (B, classes)

    Networks of torchvision, without its name before theirs, are for small pictures too: up to SMALL pixels they begin
    with a 3x3 convolution of stride 1, ResNets without pooling, as is usual there.
    """
    if name in CONVNETS:
        return convnet(name, Shape(channels, classes, size), changes)
    if name.startswith(HCFORMER):
        return create_backbone(name, classes, pretrained, **{**changes, "image_size": size, "in_channels": channels})
    if channels != 3:
        raise UserError(f"channels={channels}: {name} takes pictures in colour; leave it out, or use another model")
    network: Any = create_backbone(name, classes, pretrained, any_size=True, **changes)
    if ":" in name:
        _try(network, name, size)
    elif size <= SMALL:
        is_resnet = name.startswith("resnet")
        stem = network.conv1 if is_resnet else network.features[0][0]
        new = nn.Conv2d(3, stem.out_channels, 3, padding=1, bias=stem.bias is not None)
        if is_resnet:
            network.conv1, network.maxpool = new, nn.Identity()
        else:
            network.features[0][0] = new
    return cast(nn.Module, network)


@torch.no_grad()
def _try(network: nn.Module, name: str, size: int) -> None:
    """Not every network takes pictures of every size."""
    try:
        network.eval()(torch.zeros(1, 3, size, size))
    except (RuntimeError, AssertionError, ValueError) as error:
        how = "set the size it was made for"
        raise UserError(f"{name} does not take size={size} ({one_line(error, 120)}): {how}") from error
    network.train()


def head_of(network: nn.Module) -> nn.Module:
    """The classifier of a network: what it says itself, as those of timm do, else its last linear layer.

    >>> head_of(create_backbone("resnet18", num_classes=10)).out_features
    10
    """
    own = network.get_classifier() if hasattr(network, "get_classifier") else None  # type: ignore[operator]
    if isinstance(own, nn.Module) and next(own.parameters(), None) is not None:
        return own
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(
            f"{type(network).__name__}: no linear layer is its classifier; leave out what is said of the head"
        )
    return linear[-1]


def blocks_of(network: nn.Module) -> list[nn.Module]:
    """What is compiled and sharded one by one: what a network says itself, else its parts that stand in lists and are
    several of one kind, as the blocks of ResNets and transformers are."""
    if inspect.ismethod(own := getattr(network, "blocks", None)):
        return list(own())
    lists = {module: None for module in network.modules() if type(module) in (nn.Sequential, nn.ModuleList)}
    members = [part for listed in lists for part in listed.children() if part not in lists]
    parts = [part for part in members if next(part.children(), None) is not None]
    kinds = Counter(map(type, parts))
    chosen = [part for part in parts if kinds[type(part)] > 1]
    within = {module for part in chosen for module in part.modules() if module is not part}
    return [part for part in chosen if part not in within]


def _create_timm(name: str, model: str, num_classes: int, pretrained: bool, any_size: bool) -> nn.Module:
    require("timm")
    import timm

    architecture = model.partition(".")[0]  # what follows the dot names weights
    if own := architecture.startswith(HCFORMER):
        import horosphere.models.timm_models  # noqa: F401  registers
    if not timm.is_model(architecture):
        raise _unknown("timm", architecture, timm.list_models())
    if pretrained and not timm.models.is_model_pretrained(model):
        raise UserError(
            f"{name}: timm has no weights for it; leave out pretrained, or see timm.list_pretrained('{architecture}*')"
        )
    options: tuple[dict[str, Any], ...] = (
        {"strict_img_size": False},
        {"dynamic_img_size": True, "dynamic_img_pad": True},
    )
    for option in options if any_size and not own else ():  # Swin's, plain ones'; ours take any size
        try:
            return timm.create_model(model, pretrained=pretrained, num_classes=num_classes, **option)
        except TypeError:  # the option of another family: this one has no such argument
            continue
    return timm.create_model(model, pretrained=pretrained, num_classes=num_classes)


def _create_torchvision(name: str, model: str, num_classes: int, pretrained: bool) -> nn.Module:
    require("torchvision")
    import torchvision.models as zoo

    if model not in zoo.list_models(module=zoo):
        raise _unknown("torchvision", model, zoo.list_models(module=zoo))
    if not pretrained:
        return zoo.get_model(model, weights=None, num_classes=num_classes)
    weights = zoo.get_model_weights(model).DEFAULT
    options = {"image_size": weights.meta["min_size"][0]} if model.startswith("vit_") else {}
    net = zoo.get_model(model, weights=None, num_classes=len(weights.meta["categories"]), **options)
    # get_model would load the weights by unpickling
    net.load_state_dict(weights.get_state_dict(progress=False, check_hash=True, weights_only=True))
    return _for_classes(net, name, num_classes)


def _for_classes(net: nn.Module, name: str, count: int) -> nn.Module:
    """The network with a classifier for `count` classes: its own where the number is right, else a new one."""
    *_, (place, last) = net.named_modules()
    if not isinstance(last, nn.Linear):
        raise UserError(
            f"{name}: its classifier does not end in a linear layer, so it keeps its own classes; leave out pretrained"
        )
    if last.out_features != count:
        net.set_submodule(place, nn.Linear(last.in_features, count, bias=last.bias is not None))
    return net


def _unknown(library: str, model: str, known: list[str]) -> UserError:
    near = [f"{library}:{name}" for name in difflib.get_close_matches(model, known, n=3, cutoff=0.5)]
    return UserError(
        f"{library} knows no model {model}: "
        + (f"did you mean {', '.join(near)}?" if near else "see its list_models()")
    )


def adapt(model: nn.Module) -> tuple[Any, nn.Linear | None]:
    """The model as a `Backbone`, and its classifier, taken off it, where that is one linear layer.

    >>> backbone, _ = adapt(create_backbone("hcformer-nano-32", num_classes=10))
    >>> [level.shape[1] for level in backbone.pyramid(torch.rand(1, 3, 32, 32))], backbone.width
    ([32, 64, 196, 224], 224)
    """
    if all(hasattr(model, name) for name in ("features", "map_width", "width")):
        return model, None
    if hasattr(model, "forward_features") and hasattr(model, "forward_head"):
        backbone, classifier = TimmBackbone(model), model.get_classifier()  # type: ignore[operator]
        model.reset_classifier(0)  # type: ignore[operator]
        return backbone, classifier if isinstance(classifier, nn.Linear) else None
    if not getattr(model, "manifold", FLAT).flat:
        raise UserError(
            f"{type(model).__name__} on {model.manifold}: a backbone gives flat maps; use geometry=euclidean"
        )
    parts = {name: part for name, part in model.named_children() if not isinstance(part, Manifold)}
    if hasattr(model, "class_token") and "heads" in parts:
        *_, last = parts["heads"].children()
        model.heads = nn.Identity()
        return TorchvisionViT(model), cast(nn.Linear, last)
    if getattr(parts.get("avgpool"), "output_size", None) in (1, (1, 1)) and not any(
        name.lower().startswith("aux") for name in parts
    ):
        return _pooled(parts)
    raise UserError(f"{type(model).__name__}: no map is pooled into a vector in front of its classifier; {WRAP}")


def _pooled(parts: dict[str, nn.Module]) -> tuple[PooledBackbone, nn.Linear]:
    """torchvision's convolutional nets and Swin: a trunk up to `avgpool`, then layers that end in the classifier."""
    pool = list(parts).index("avgpool")
    trunk, after = list(parts.values())[:pool], nn.Sequential(*list(parts.values())[pool + 1 :])
    layers = [layer for layer in after.modules() if not isinstance(layer, (nn.Sequential, Manifold))]
    linears = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if not linears or layers[-1] is not linears[-1]:
        raise UserError(f"a backbone whose classifier does not end in a linear layer: {WRAP}")
    neck = nn.Sequential(*layers[:-1])
    if linears[0] is layers[0]:
        neck.insert(0, nn.Flatten(1))  # torchvision flattens in its forward
    return PooledBackbone(nn.Sequential(*trunk), neck, linears[0].in_features, linears[-1].in_features), linears[-1]


# -- on an accelerator ------------------------------------------------------------------------------------------------


def laid_out(x: Tensor) -> Tensor:
    """As convolutions like it: channels last on CUDA."""
    return x.contiguous(memory_format=torch.channels_last if x.is_cuda else torch.contiguous_format)


def for_cuda(network: nn.Module, device: torch.device, processes: int) -> nn.Module:
    """On CUDA: channels last in convolutions (sharding wants contiguous weights), BatchNorm over all processes."""
    if device.type != "cuda":
        return network
    if processes > 1:
        return with_common_norms(network)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def with_common_norms(network: nn.Module) -> nn.Module:
    """BatchNorm over all processes, in place. Those on a curved manifold add up their sums themselves."""
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not getattr(module, "sums_processes", False):
            network.set_submodule(name, nn.SyncBatchNorm.convert_sync_batchnorm(module))
    return network
