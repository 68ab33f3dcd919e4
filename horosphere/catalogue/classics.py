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
    Task("ratings", "horosphere.tasks.ratings:RatingsTask", "predict ratings, recommend items", "these ratings"),
)

CONVNETS: tuple[Model, ...] = ()

TABLES: tuple[Model, ...] = ()

RECURRENT: tuple[Model, ...] = ()

WORDS: tuple[Model, ...] = ()

TEXTS: tuple[Model, ...] = ()

PAIRS: tuple[Model, ...] = ()

MASKED: tuple[Model, ...] = ()

RATINGS: tuple[Model, ...] = (
    Model(
        "mf",
        "ratings",
        "horosphere.models.recommend:MatrixFactorisation",
        "Matrix factorisation",
        settings="horosphere.models.recommend:FactorsConfig",
        geometries=ANY,
        ablations=("score",),
        paper="Koren et al. 2009",
        notes=("12.02", "12.03", "12.06"),
    ),
    Model(
        "bpr",
        "ratings",
        "horosphere.models.recommend:RankedFactors",
        "BPR",
        settings="horosphere.models.recommend:RankingConfig",
        geometries=ANY,
        ablations=("score", "loss"),
        paper="Rendle et al. 2009",
        oracle="recbole's BPRLoss",
        notes=("12.04", "12.05", "12.08", "12.09"),
    ),
    Model(
        "autorec",
        "ratings",
        "horosphere.models.recommend:AutoRec",
        "AutoRec",
        settings="horosphere.models.recommend:AutoRecConfig",
        geometries=ANY,
        paper="Sedhain et al. 2015",
        notes=("12.07",),
    ),
    Model(
        "neumf",
        "ratings",
        "horosphere.models.recommend:NeuMF",
        "NeuMF",
        settings="horosphere.models.recommend:NeuMFConfig",
        geometries=ANY,
        ablations=("loss",),
        paper="He et al. 2017",
        oracle="recbole's NeuMF",
        notes=("12.10", "12.11"),
    ),
)

MODELS = (*CONVNETS, *TABLES, *RECURRENT, *WORDS, *TEXTS, *PAIRS, *MASKED, *RATINGS)
