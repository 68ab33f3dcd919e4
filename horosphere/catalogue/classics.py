"""The classics of deep learning, family by family: new tasks, and models in any geometry beside their oracles."""

from horosphere.catalogue.entries import Model, Task

ANY = ("lorentz", "poincare", "euclidean")

TASKS: tuple[Task, ...] = (
    # -- tables
    # -- words
    # -- texts
    Task("texts", "horosphere.tasks.texts:Texts", "classify texts", "these texts"),
    # -- pairs
    Task("pairs", "horosphere.tasks.pairs:Pairs", "translate sentences", "these sentences"),
    # -- masked
    # -- ratings
)

CONVNETS: tuple[Model, ...] = ()

TABLES: tuple[Model, ...] = ()

RECURRENT: tuple[Model, ...] = ()

WORDS: tuple[Model, ...] = ()

TEXTS: tuple[Model, ...] = (
    Model(
        "textcnn",
        "texts",
        "horosphere.models.text:TextCNN",
        "TextCNN",
        settings="horosphere.models.text:TextCNNConfig",
        geometries=ANY,
        paper="Kim 2014",
        oracle="torch's Conv1d, the padding cut off",
        notes=("11.31", "11.39"),
    ),
    Model(
        "birnn",
        "texts",
        "horosphere.models.text:BiRNN",
        "BiRNN",
        settings="horosphere.models.text:BiRNNConfig",
        geometries=ANY,
        oracle="torch's LSTM, each text alone",
        notes=("11.30",),
    ),
    Model(
        "hypertext",
        "texts",
        "horosphere.models.text:HyperText",
        "HyperText",
        settings="horosphere.models.text:HyperTextConfig",
        geometries=ANY,
        paper="Zhu et al. 2020",
        oracle="torch's EmbeddingBag and Linear: fastText's classifier",
    ),
)

PAIRS: tuple[Model, ...] = (
    Model(
        "seq2seq",
        "pairs",
        "horosphere.models.seq2seq:Seq2Seq",
        "Encoder and decoder",
        settings="horosphere.models.seq2seq:Seq2SeqConfig",
        geometries=ANY,
        paper="Cho et al. 2014",
        oracle="torch's GRU, each pair alone",
        notes=("8.08", "11.33", "11.34"),
    ),
    Model(
        "seq2seq-attention",
        "pairs",
        "horosphere.models.seq2seq:Seq2SeqAttention",
        "Encoder and decoder with attention",
        settings="horosphere.models.seq2seq:Seq2SeqConfig",
        geometries=ANY,
        paper="Bahdanau et al. 2015",
        oracle="torch's GRU, each pair alone",
        notes=("11.38",),
    ),
)

MASKED: tuple[Model, ...] = ()

RATINGS: tuple[Model, ...] = ()

MODELS = (*CONVNETS, *TABLES, *RECURRENT, *WORDS, *TEXTS, *PAIRS, *MASKED, *RATINGS)
