"""The classics of deep learning, family by family: new tasks, and models in any geometry beside their oracles."""

from typing import Any

from horosphere.catalogue.entries import BOTH, FLAT, Model, Task

ANY = ("lorentz", "poincare", "euclidean")

TASKS: tuple[Task, ...] = (
    # -- tables
    Task("tables", "horosphere.tasks.tables:Tables", "answer the rows of a table of numbers", "this table"),
    # -- words
    # -- texts
    Task("texts", "horosphere.tasks.texts:Texts", "classify texts", "these texts"),
    # -- pairs
    Task("pairs", "horosphere.tasks.pairs:Pairs", "translate sentences", "these sentences"),
    # -- masked
    # -- ratings
    Task("ratings", "horosphere.tasks.ratings:RatingsTask", "predict ratings, recommend items", "these ratings"),
)

CONVNETS: tuple[Model, ...] = ()


def _table(name: str, build: str, title: str, **more: Any) -> Model:
    """A model of the rows of a table; without settings of its own, its geometry is all there is to choose."""
    settings = {"settings": "horosphere.models.config:InAnyGeometry", "geometries": ANY}
    return Model(name, "tables", f"horosphere.models.{build}", title, **{**settings, **more})


TABLES: tuple[Model, ...] = (
    _table(
        "perceptron",
        "linear:Perceptron",
        "Perceptron",
        paper="Rosenblatt 1958",
        oracle="scikit-learn's Perceptron",
        notes=("2.01",),
    ),
    _table(
        "linear-regression",
        "linear:LinearRegression",
        "Linear regression",
        oracle="the normal equations",
        notes=("4.01",),
    ),
    _table(
        "softmax-regression",
        "linear:SoftmaxRegression",
        "Softmax regression",
        paper="Ganea et al. 2018",
        oracle="scikit-learn's LogisticRegression",
        notes=("4.03",),
    ),
    _table(
        "svm",
        "linear:SVM",
        "Support vector machine",
        settings="horosphere.models.linear:SVMConfig",
        paper="Cortes & Vapnik 1995",
        oracle='scikit-learn\'s LinearSVC(loss="hinge")',
        notes=("15.01",),
    ),
    _table(
        "mlp",
        "mlp:MLP",
        "Multilayer perceptron",
        settings="horosphere.models.mlp:MLPConfig",
        paper="Ganea et al. 2018",
        oracle="scikit-learn's MLPClassifier",
        notes=("15.04",),
    ),
    _table(
        "maxout",
        "mlp:MaxoutNetwork",
        "Maxout network",
        settings="horosphere.models.mlp:MaxoutConfig",
        paper="Goodfellow et al. 2013",
        notes=("15.09",),
    ),
    _table(
        "rbm",
        "rbm:RBM",
        "Restricted Boltzmann machine",
        settings="horosphere.models.rbm:RBMConfig",
        geometries=(FLAT,),
        paper="Hinton 2002",
        oracle="all states, enumerated",
        notes=("5.01", "5.03", "5.04"),
    ),
    _table(
        "gaussian-rbm",
        "rbm:GaussianRBM",
        "Gaussian RBM",
        settings="horosphere.models.rbm:RBMConfig",
        geometries=(FLAT,),
        paper="Hinton & Salakhutdinov 2006",
        oracle="an integral over one column",
        notes=("5.02",),
    ),
)

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
