"""The one table of names: tasks, models, comparisons. It answers `list`, `--help`, near misses and "whose is this?".

What an entry stands for is text, "module:name", imported when it is asked for: this file imports nothing heavy.
An installed package adds entries of its own by an entry point of the group "horosphere" that names a `Plugin`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from horosphere.described import Setting, describe
from horosphere.errors import UserError, choices, one_line

LORENTZ, FLAT = "lorentz", "euclidean"
BOTH = (LORENTZ, FLAT)
ENGINE = "horosphere.train.config:EngineConfig"
Named = TypeVar("Named", bound="Task | Model | Comparison")


@dataclass(frozen=True)
class Task:
    """A kind of learning."""

    name: str
    build: str  # its class
    summary: str
    subject: str  # what a verdict speaks of: curvature pays "on this text"
    options: str = ""  # the class of what `compare` can be asked for besides settings
    drawer: str = ""  # the function that adds what instruments saw in its runs to the page of a study


@dataclass(frozen=True)
class Model:
    """A network by name; a name that ends in a colon stands for all of another library's."""

    name: str
    task: str
    build: str  # what makes it
    title: str  # what people call it
    configure: str = ""  # the function (name, **changes) that gives its configuration; "": `settings` with the changes
    settings: str = ""  # the class of that configuration, whose fields are its settings
    geometries: tuple[str, ...] = (FLAT,)
    twin: str = ""  # the same network in flat space, where that has a name of its own
    ablations: tuple[str, ...] = ()  # settings that the paper turns
    comparison: str = ""  # what `compare` does with it; "": its twin, or its geometries
    paper: str = ""
    oracle: str = ""  # whose numbers it must reproduce in flat space
    asked: str = ""  # how it is asked for, where that is not model=NAME


@dataclass(frozen=True)
class Entrant:
    """One side of a comparison."""

    name: str
    recipe: str = ""  # "": the one that is compared
    changes: tuple[str, ...] = ()  # settings, as key=value
    flat: bool = False
    twin_of: str = ""  # the curved entrant whose flat twin this is
    ablation_of: str = ""  # the entrant that this is without a part
    baseline: bool = False  # shown beside the others; a verdict does not speak of it


@dataclass(frozen=True)
class Comparison:
    name: str
    column: str  # what its entrants are: "model", "geometry"
    entrants: tuple[Entrant, ...]


@dataclass(frozen=True)
class Plugin:
    """What an installed package adds. Recipes are flat dictionaries of settings."""

    tasks: tuple[Task, ...] = ()
    models: tuple[Model, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    recipes: Mapping[str, dict[str, Any]] = field(default_factory=dict)


# -- the table --------------------------------------------------------------------------------------------------------

TASKS = (
    Task(
        "language",
        "horosphere.tasks.language:Language",
        "predict the next token of a text",
        "this text",
        "horosphere.tasks.language:LanguageOptions",
        "horosphere.plots.language_report:add_language",
    ),
    Task("pictures", "horosphere.tasks.pictures:Pictures", "classify pictures", "these pictures"),
    Task("dense", "horosphere.tasks.dense:Dense", "classify pixels, find objects and their masks", "these pictures"),
    Task(
        "nodes",
        "horosphere.tasks.nodes:Nodes",
        "embed the nodes of a tree or graph",
        "this data",
        "horosphere.tasks.nodes:NodesOptions",
        "horosphere.plots.nodes:add_nodes",
    ),
    Task(
        "image_text",
        "horosphere.tasks.image_text:ImageText",
        "texts and pictures in one space; adapt a CLIP",
        "these captions",
        "horosphere.tasks.image_text:ImageTextOptions",
        "horosphere.plots.image_text:add_image_text",
    ),
    Task("few_shot", "horosphere.tasks.few_shot:FewShot", "learn classes from a few pictures each", "these pictures"),
    Task(
        "open_vocabulary",
        "horosphere.tasks.open_vocabulary:OpenVocabulary",
        "find any class that has a name at each pixel",
        "these pictures",
    ),
)


def _helm(size: str, kind: str) -> tuple[Model, Model]:
    """A HELM and its flat twin."""
    curved, flat = (f"helm-{kind}-{size}", f"{'llama' if kind == 'd' else 'deepseek'}-{size}")
    common: Any = {
        "task": "language",
        "build": "horosphere.models.helm:HelmForCausalLM",
        "configure": "horosphere.models.helm:helm_config",
        "settings": "horosphere.models.helm:HelmConfig",
    }
    ablations = ("attention", "position", "head", "geometry") + ("expert_curvature", "gate") * (kind == "mice")
    title, twin, twin_paper, oracle = (
        ("HELM-D", "Llama", "Touvron et al. 2023", "transformers' LlamaForCausalLM")
        if kind == "d"
        else ("HELM-MiCE", "DeepSeek-V3", "DeepSeek-AI 2024", "transformers' DeepseekV3ForCausalLM")
    )
    return (
        Model(curved, title=title, geometries=BOTH, twin=flat, ablations=ablations, paper="He et al. 2025", **common),
        Model(flat, title=twin, paper=twin_paper, oracle=oracle, **common),
    )


def _hcformer(name: str) -> Model:
    return Model(
        name,
        task="pictures",
        build="horosphere.models.hcformer:HCFormer",
        title="HCFormer",
        configure="horosphere.models.hcformer:hcformer_config",
        settings="horosphere.models.hcformer:HCFormerConfig",
        geometries=BOTH,
        ablations=(
            *("patch_geometry", "window_geometry", "curvature", "window_centres"),
            *("hierarchy", "assignment", "position_bias"),
        ),
        comparison="levels",
        paper="HCFormer",
    )


def _torchvision(name: str, title: str, paper: str) -> Model:
    return Model(
        name, "pictures", "horosphere.models.backbones:create_backbone", title, paper=paper, oracle="torchvision"
    )


MODELS = (
    *(model for size in ("tiny", "small", "100m") for model in _helm(size, "d")),
    *(model for size in ("tiny", "small", "120m", "1b") for model in _helm(size, "mice")),
    *map(_hcformer, ("hcformer-nano-32", "hcformer-nano", "hcformer-tiny", "hcformer-small", "hcformer-medium")),
    Model(
        "himapper",
        "pictures",
        "horosphere.models.himapper:HiMapper",
        "Hi-Mapper",
        settings="horosphere.models.himapper:HiMapperConfig",
        geometries=BOTH,
        ablations=("tree.leaves", "tree.levels", "tree.geometry", "tree.probabilistic"),
        comparison="himapper",
        paper="Kwon et al. 2024",
        asked="tree.levels=4, …: around any model",
    ),
    _torchvision("resnet18", "ResNet-18", "He et al. 2016"),
    _torchvision("resnet50", "ResNet-50", "He et al. 2016"),
    _torchvision("swin_t", "Swin-T", "Liu et al. 2021"),
    _torchvision("convnext_tiny", "ConvNeXt-T", "Liu et al. 2022"),
    _torchvision("torchvision:", "any classifier of torchvision", ""),
    Model("timm:", "pictures", "horosphere.models.backbones:create_backbone", "any classifier of timm", oracle="timm"),
    Model("semantic-fpn", "dense", "horosphere.models.dense:SemanticFPN", "Semantic FPN", paper="Kirillov et al. 2019"),
    Model(
        "mask-rcnn",
        "dense",
        "horosphere.models.dense:mask_rcnn",
        "Mask R-CNN",
        paper="He et al. 2017",
        oracle="torchvision's MaskRCNN",
    ),
    Model(
        "cost-aggregation",
        "open_vocabulary",
        "horosphere.models.cost_aggregation:CostAggregation",
        "Cost aggregation",
        settings="horosphere.models.cost_aggregation:CostAggregationConfig",
        ablations=("guide", "text_guide"),
        comparison="open-vocabulary",
        paper="CAT-Seg: Cho et al. 2024",
    ),
    Model(
        "embedding",
        "nodes",
        "horosphere.models.node_embedding:NodeEmbedding",
        "Embedding of nodes",
        settings="horosphere.models.node_embedding:NodeEmbeddingConfig",
        geometries=("lorentz", "poincare", "product", "euclidean"),
        comparison="geometries",
        paper="Nickel & Kiela 2017, 2018",
    ),
    Model(
        "two-towers",
        "image_text",
        "horosphere.models.towers.two:two_towers",
        "Two towers",
        settings="horosphere.models.towers.two:TwoTowersConfig",
        geometries=("sphere", "lorentz", "euclidean"),
        ablations=("geometry", "squared", "entailment"),
        comparison="spaces",
        paper="Radford et al. 2021, Desai et al. 2023",
    ),
    Model(
        "clip",
        "image_text",
        "horosphere.models.adapters:adapt",
        "Adapted CLIP",
        settings="horosphere.models.adapters:Adaptation",
        ablations=("method", "sides", "block", "shared"),
        comparison="adapters",
        paper="HyperCLIP, Alper & Averbuch-Elor 2024",
    ),
    Model("linear-probe", "few_shot", "horosphere.models.few_shot:LinearProbe", "linear probe"),
    Model(
        "coop",
        "few_shot",
        "horosphere.models.few_shot:TextLearner",
        "CoOp",
        settings="horosphere.models.prompts:ContextConfig",
        ablations=("context",),
        paper="Zhou et al. 2022",
    ),
    Model(
        "lathadapter",
        "few_shot",
        "horosphere.models.few_shot:TextLearner",
        "LatHAdapter",
        settings="horosphere.models.lathadapter:LatHAdapterConfig",
        geometries=("poincare", "lorentz", FLAT),
        ablations=("geometry", "beta", "attributes", "neighbours"),
        comparison="few-shot",
        paper="LatHAdapter",
    ),
    Model(
        "coop-lathadapter",
        "few_shot",
        "horosphere.models.few_shot:TextLearner",
        "LatHAdapter beside CoOp",
        settings="horosphere.models.few_shot:ContextAdapterConfig",
        geometries=("poincare", "lorentz", FLAT),
        comparison="few-shot",
        paper="LatHAdapter",
    ),
)


def _family(size: str, mixture: str) -> Comparison:
    dense, mixed = f"helm-d-{size}", f"helm-mice-{mixture}"
    return Comparison(
        f"helm-{size}",
        "model",
        (
            Entrant("HELM-D", dense),
            Entrant("Llama", f"llama-{size}", flat=True, twin_of="HELM-D"),
            Entrant("HELM-MiCE", mixed),
            Entrant("MiCE-Const", mixed, ("expert_curvature=constant",), ablation_of="HELM-MiCE"),
            Entrant("DeepSeek-V3", f"deepseek-{mixture}", flat=True, twin_of="HELM-MiCE"),
        ),
    )


def _levels(window: str, patch: str) -> tuple[str, str]:
    return f"window_geometry={window}", f"patch_geometry={patch}"


COMPARISONS = (
    _family("tiny", "tiny"),
    _family("small", "small"),
    _family("100m", "120m"),
    Comparison(
        "levels",
        "network",
        (
            Entrant("E + E", changes=_levels(FLAT, FLAT), flat=True),
            Entrant("H + H", changes=_levels(LORENTZ, LORENTZ)),
            Entrant("H + E", changes=_levels(LORENTZ, FLAT)),
        ),
    ),
    Comparison(
        "himapper",
        "network",
        (
            Entrant("Hi-Mapper"),
            Entrant("Hi-Mapper, flat loss", changes=("tree.geometry=euclidean",)),
            Entrant("without Hi-Mapper", changes=("tree=none",), flat=True),
        ),
    ),
    Comparison(
        "spaces",
        "space",
        (
            Entrant("hyperboloid (MERU)", changes=("geometry=lorentz",)),
            Entrant("flat (EuCLIP)", changes=("geometry=euclidean",), flat=True, twin_of="hyperboloid (MERU)"),
            Entrant("sphere (CLIP)", changes=("geometry=sphere",), flat=True),
        ),
    ),
    # W·Sᵀ is the same for every curvature: a verdict speaks of methods here, not of curvature
    Comparison(
        "adapters",
        "method",
        (
            Entrant("HyperCLIP", "adapt-hyperclip", ("method=hyperclip",)),
            Entrant("LoRA", "adapt-lora", ("method=lora",), twin_of="HyperCLIP"),
            Entrant("OFT", "adapt-oft", ("method=oft",), twin_of="HyperCLIP"),
            Entrant("projection", "adapt-radial", ("method=projection",)),
            Entrant("full", "adapt-full", ("method=full",)),
        ),
    ),
    # rates chosen on pictures that no table judges by; twins have the same
    Comparison(
        "few-shot",
        "method",
        (
            Entrant("linear-probe", "few-shot", ("model=linear-probe", "lr=3e-3")),
            Entrant("coop", "few-shot", ("model=coop", "lr=3e-2"), ablation_of="coop-lathadapter"),
            Entrant("lathadapter", "few-shot", ("model=lathadapter", "lr=0.1")),
            Entrant(
                "lathadapter-flat",
                "few-shot",
                ("model=lathadapter", "lr=0.1", "geometry=euclidean"),
                flat=True,
                twin_of="lathadapter",
            ),
            Entrant("coop-lathadapter", "few-shot", ("model=coop-lathadapter", "lr=3e-2")),
        ),
    ),
    Comparison(
        "open-vocabulary",
        "method",
        (
            Entrant("HyperCLIP", "open-vocabulary", ("method=hyperclip", "sides=text")),
            Entrant("frozen", "open-vocabulary", ("method=none", "sides=text"), ablation_of="HyperCLIP"),
            Entrant("LoRA", "open-vocabulary", ("method=lora", "sides=text"), twin_of="HyperCLIP"),
            Entrant("OFT", "open-vocabulary", ("method=oft", "sides=text"), twin_of="HyperCLIP"),
            Entrant("full", "open-vocabulary", ("method=full", "sides=both")),
        ),
    ),
)


# -- looking things up ------------------------------------------------------------------------------------------------


@cache
def plugins() -> tuple[Plugin, ...]:
    """What installed packages add, in the order of their names."""
    return tuple(_plugin(point) for point in sorted(entry_points(group="horosphere"), key=lambda point: point.name))


def _plugin(point: EntryPoint) -> Plugin:
    """What an entry point names."""
    try:
        plugin = point.load()
    except Exception as error:  # whatever a package does when it is imported
        how = "repair or uninstall the package"
        raise UserError(f"the plugin {point.name} cannot be loaded ({one_line(error)}); {how}") from error
    if not isinstance(plugin, Plugin):
        raise UserError(f"the plugin {point.name}: {point.value} is no horosphere.catalogue.Plugin; make it one")
    for kind, cls in (("tasks", Task), ("models", Model), ("comparisons", Comparison)):
        entries = getattr(plugin, kind)
        if not isinstance(entries, tuple) or not all(isinstance(entry, cls) for entry in entries):
            raise UserError(f"the plugin {point.name}: its {kind} should be a tuple of {cls.__name__}")
    return plugin


def tasks() -> dict[str, Task]:
    return _by_name(TASKS, "tasks")


def models() -> dict[str, Model]:
    return _by_name(MODELS, "models")


def comparisons() -> dict[str, Comparison]:
    return _by_name(COMPARISONS, "comparisons")


def _by_name(table: tuple[Named, ...], kind: str) -> dict[str, Named]:
    """A plugin adds names; it takes none away from those before it."""
    named = {entry.name: entry for entry in table}
    for entry in (entry for plugin in plugins() for entry in getattr(plugin, kind)):
        if entry.name in named:
            raise UserError(f"a plugin adds to the {kind} {entry.name}, which is there already; rename or uninstall it")
        named[entry.name] = entry
    return named


def task(name: object) -> Task:
    if not isinstance(name, str) or name not in tasks():
        raise UserError(f"task={name}: there is no such task; {choices(name, tasks())}")
    return tasks()[name]


def model(name: str, task: str, setting: str = "model") -> Model:
    """The model of this name, which must be one of this task's; `setting` is how it was asked for."""
    known = models()
    mine = [entry.name for entry in known.values() if entry.task == task and not entry.asked]
    mine = [f"{n}NAME" if n.endswith(":") else n for n in mine]
    library = f"{name.partition(':')[0]}:" if ":" in name else name
    entry = known.get(library)
    if entry is None:
        raise UserError(f"{setting}={name}: there is no such model; {choices(name, mine)}")
    if entry.task != task or entry.asked:
        whose = f"it is asked for by {entry.asked}" if entry.asked else f"a model of the task {entry.task}"
        raise UserError(f"{setting}={name}: {whose}; {task} has {', '.join(mine)}")
    if name.endswith(":"):
        raise UserError(f"{setting}={name}: which one? Write {name}NAME")
    return entry


def known_settings(recipe: Mapping[str, Any]) -> dict[str, Setting]:
    """All settings of a recipe: those of its task, of every training, and of the network it names."""
    entry = network_of(recipe)
    classes = [task(recipe.get("task")).build, ENGINE, *([entry.settings] if entry and entry.settings else [])]
    return {name: setting for reference in classes for name, setting in describe(reference).items()}


def network_of(recipe: Mapping[str, Any]) -> Model | None:
    """What the table says of the network of a recipe."""
    name = str(recipe.get("backbone", recipe.get("model")))
    return models().get(f"{name.partition(':')[0]}:" if ":" in name else name)


def owners(setting: str) -> list[str]:
    """Who has a setting of this name: tasks, what they can be asked for in a comparison, and models."""
    tables = {f"the task {entry.name}": entry.build for entry in tasks().values()}
    tables |= {f"comparisons of {entry.name}": entry.options for entry in tasks().values() if entry.options}
    tables |= {entry.title: entry.settings for entry in models().values() if entry.settings}
    return [owner for owner, reference in tables.items() if setting in describe(reference)]


def comparison_of(entry: Model) -> Comparison:
    """What `compare` sets beside a model: what the table says, else its flat twin, else its geometries."""
    if entry.comparison in comparisons():
        return comparisons()[entry.comparison]
    if entry.twin:
        twin = models()[entry.twin]
        return Comparison(
            entry.name, "model", (Entrant(entry.title), Entrant(twin.title, twin.name, flat=True, twin_of=entry.title))
        )
    if len(entry.geometries) < 2:
        raise UserError(f"{entry.name} exists in {entry.geometries[0]} space only: there is nothing to compare it with")
    return comparison_of_geometries(entry.geometries)


def comparison_of_geometries(names: tuple[str, ...]) -> Comparison:
    return Comparison(
        "geometries",
        "geometry",
        tuple(Entrant(name, changes=(f"geometry={name}",), flat=name == FLAT) for name in names),
    )


def resolve(reference: str) -> Any:
    """What "module:name" stands for, imported now."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
