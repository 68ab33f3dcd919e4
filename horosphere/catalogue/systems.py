"""The research systems, their twins and rivals: tasks, models, comparisons."""

from typing import Any

from horosphere.catalogue.entries import BOTH, FLAT, LORENTZ, Comparison, Entrant, Model, Task

SPHERE = "sphere"
HELM = "He et al. 2025"

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
    Task("pixels", "horosphere.tasks.pixels:Pixels", "find the class of each pixel", "these pictures"),
    Task("objects", "horosphere.tasks.objects:Objects", "find objects, their boxes and masks", "these pictures"),
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


def _language(name: str, title: str, **more: Any) -> Model:
    return Model(
        name,
        "language",
        "horosphere.models.helm:HelmForCausalLM",
        title,
        configure="horosphere.models.helm:helm_config",
        settings="horosphere.models.helm:HelmConfig",
        **more,
    )


FORMS = ("attention", "position", "head", "geometry", "residual", "score", "average", "qk_norm", "unit_weights")
THREE = (LORENTZ, FLAT, SPHERE)


def _dense(size: str) -> tuple[Model, ...]:
    """HELM-D, its flat twin, a stronger one, and what it is on the sphere."""
    care = ("residual", "average", "qk_norm", "unit_weights")
    return (
        _language(f"helm-d-{size}", "HELM-D", twin=f"llama-{size}", paper=HELM, ablations=FORMS, geometries=THREE),
        _language(f"llama-{size}", "Llama", paper="Touvron et al. 2023", oracle="transformers' LlamaForCausalLM"),
        _language(f"qwen3-{size}", "Qwen3", paper="Yang et al. 2025", oracle="transformers' Qwen3ForCausalLM"),
        _language(
            f"sphere-{size}",
            "Sphere",
            paper="after Loshchilov et al. 2024",
            ablations=care,
            geometries=(SPHERE, FLAT),
        ),
    )


def _mixtures(size: str) -> tuple[Model, ...]:
    """HELM-MiCE and its flat twin."""
    ablations = tuple(form for form in FORMS if form not in ("score", "average"))
    paper = {"paper": HELM, "ablations": (*ablations, "expert_curvature", "gate"), "geometries": THREE}
    oracle = "transformers' DeepseekV3ForCausalLM"
    return (
        _language(f"helm-mice-{size}", "HELM-MiCE", twin=f"deepseek-{size}", **paper),
        _language(f"deepseek-{size}", "DeepSeek-V3", paper="DeepSeek-AI 2024", oracle=oracle),
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
    *(model for size in ("tiny", "10m", "small", "134m", "100m") for model in _dense(size)),
    *(model for size in ("tiny", "10m", "small", "134m", "120m", "1b") for model in _mixtures(size)),
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
    _torchvision("resnet50", "ResNet-50", "He et al. 2016"),
    _torchvision("swin_t", "Swin-T", "Liu et al. 2021"),
    _torchvision("convnext_tiny", "ConvNeXt-T", "Liu et al. 2022"),
    _torchvision("torchvision:", "any classifier of torchvision", ""),
    Model("timm:", "pictures", "horosphere.models.backbones:create_backbone", "any classifier of timm", oracle="timm"),
    Model(
        "semantic-fpn",
        "pixels",
        "horosphere.models.segmentation:SemanticFPN",
        "Semantic FPN",
        paper="Kirillov et al. 2019",
        parameters=(((3, 11, 192), 8_986_119),),
    ),
    Model(
        "mask-rcnn",
        "objects",
        "horosphere.models.detection:mask_rcnn",
        "Mask R-CNN",
        paper="He et al. 2017",
        oracle="torchvision's MaskRCNN",
        parameters=(((3, 1, 320), 25_659_543),),
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
        geometries=("lorentz", "poincare", "product", "euclidean", "sphere"),
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


def _curvatures(size: str) -> Comparison:
    """All three curvatures, each beside a strong flat model of its form. Llama is there to be seen."""
    mixed, sphere = f"helm-mice-{size}", f"sphere-{size}"
    return Comparison(
        f"curvatures-{size}",
        "model",
        (
            Entrant("HELM-D", f"helm-d-{size}"),
            Entrant("Sphere", sphere),
            Entrant("Flat, unit rows", sphere, ("geometry=euclidean",), flat=True, twin_of="Sphere"),
            Entrant("Qwen3", f"qwen3-{size}", flat=True, twin_of="HELM-D"),
            Entrant("Llama", f"llama-{size}", flat=True),
            Entrant("HELM-MiCE", mixed),
            Entrant("MiCE-Const", mixed, ("expert_curvature=constant",), ablation_of="HELM-MiCE"),
            Entrant("DeepSeek-V3", f"deepseek-{size}", flat=True, twin_of="HELM-MiCE"),
        ),
    )


def _levels(window: str, patch: str) -> tuple[str, str]:
    return f"window_geometry={window}", f"patch_geometry={patch}"


COMPARISONS = (
    _family("tiny", "tiny"),
    _family("small", "small"),
    _family("100m", "120m"),
    *map(_curvatures, ("tiny", "10m", "small", "134m")),
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
