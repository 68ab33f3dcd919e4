"""The classics of deep learning, family by family: new tasks, and models in any geometry beside their oracles."""

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

CONVNETS: tuple[Model, ...] = ()

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
