"""The classics of deep learning, family by family: new tasks, and models in any geometry beside their oracles."""

from horosphere.catalogue.entries import BOTH, Model, Task

ANY = ("lorentz", "poincare", "euclidean")

TASKS: tuple[Task, ...] = (
    # -- tables
    # -- words
    # -- texts
    # -- pairs
    # -- masked
    Task("masked", "horosphere.tasks.masked:Masked", "guess hidden tokens from both sides", "this text"),
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

MASKED: tuple[Model, ...] = (
    Model(
        "bert-tiny",
        task="masked",
        build="horosphere.models.bert:Bert",
        title="BERT-Tiny",
        settings="horosphere.models.bert:BertConfig",
        geometries=BOTH,
        paper="Devlin+ 2019",
        oracle="transformers' BertForPreTraining",
        notes=("11.26", "11.27", "11.28", "11.29"),
    ),
)

RATINGS: tuple[Model, ...] = ()

MODELS = (*CONVNETS, *TABLES, *RECURRENT, *WORDS, *TEXTS, *PAIRS, *MASKED, *RATINGS)
