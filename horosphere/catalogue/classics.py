"""The classics of deep learning, family by family: new tasks, and models in any geometry beside their oracles."""

from typing import Any

from horosphere.catalogue.entries import BOTH, Model, Task

ANY = ("lorentz", "poincare", "euclidean")

TASKS: tuple[Task, ...] = (
    # -- tables
    # -- words
    # -- texts
    # -- pairs
    # -- masked
    # -- ratings
)


def _convnet(name: str, title: str, settings: str, paper: str, **more: Any) -> Model:
    where = "horosphere.models.convnets"
    return Model(name, "pictures", f"{where}:{name}", title, "", f"{where}:{settings}", ANY, paper=paper, **more)


CONVNETS: tuple[Model, ...] = (
    _convnet(
        *("lenet", "LeNet", "LeNetConfig", "LeCun et al. 1998"),
        notes=("6.05",),
        parameters=(((1, 10, 28), 61_706),),
        ablations=("activation", "pool"),
    ),
    _convnet(
        *("alexnet", "AlexNet", "DenseTopConfig", "Krizhevsky et al. 2012"),
        notes=("6.06",),
        parameters=(((1, 10, 224), 46_764_746), ((3, 1000, 224), 50_844_008), ((3, 1000, 227), 62_378_344)),
    ),
    _convnet(
        *("vgg11", "VGG-11", "DenseTopConfig", "Simonyan & Zisserman 2015"),
        notes=("6.07",),
        oracle="torchvision's vgg11",
        parameters=(((3, 1000, 224), 132_863_336), ((1, 10, 224), 128_806_154)),
    ),
    _convnet(
        *("nin", "Network in network", "DenseTopConfig", "Lin et al. 2014"),
        notes=("6.08",),
        parameters=(((1, 10, 224), 1_992_166), ((3, 10, 224), 2_015_398)),
    ),
    _convnet(
        *("googlenet", "GoogLeNet", "ConvNetConfig", "Szegedy et al. 2015"),
        notes=("6.09", "6.10"),
        parameters=(((1, 10, 224), 5_977_530), ((3, 1000, 224), 6_998_552)),
    ),
    _convnet(
        *("resnet18", "ResNet-18", "ResNetConfig", "He et al. 2016"),
        notes=("7.04", "7.05"),
        oracle="torchvision's resnet18",
        parameters=(((3, 1000, 224), 11_689_512),),
        ablations=("norm",),
    ),
    _convnet(
        *("densenet", "DenseNet", "DenseNetConfig", "Huang et al. 2017"),
        notes=("7.06", "7.07", "7.08"),
        parameters=(((1, 10, 224), 758_226),),
        ablations=("norm",),
    ),
)

TABLES: tuple[Model, ...] = ()

RECURRENT: tuple[Model, ...] = ()

WORDS: tuple[Model, ...] = ()

TEXTS: tuple[Model, ...] = ()

PAIRS: tuple[Model, ...] = (
    Model(
        "transformer",
        task="pairs",
        build="horosphere.models.transformer:Transformer",
        title="Transformer",
        settings="horosphere.models.transformer:TransformerConfig",
        geometries=BOTH,
        paper="Vaswani+ 2017",
        oracle="nn.Transformer",
        notes=("11.18", "11.19", "11.20", "11.21", "11.22", "11.23", "11.24", "11.25"),
    ),
)

MASKED: tuple[Model, ...] = ()

RATINGS: tuple[Model, ...] = ()

MODELS = (*CONVNETS, *TABLES, *RECURRENT, *WORDS, *TEXTS, *PAIRS, *MASKED, *RATINGS)
