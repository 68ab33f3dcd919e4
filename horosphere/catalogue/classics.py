"""The classics of deep learning, family by family: new tasks, and models in any geometry beside their oracles."""

from horosphere.catalogue.entries import Model, Task

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

PAIRS: tuple[Model, ...] = ()

MASKED: tuple[Model, ...] = ()

RATINGS: tuple[Model, ...] = ()

MODELS = (*CONVNETS, *TABLES, *RECURRENT, *WORDS, *TEXTS, *PAIRS, *MASKED, *RATINGS)
