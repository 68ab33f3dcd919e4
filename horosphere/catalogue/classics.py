"""The classics of deep learning, family by family: new tasks, and models in any geometry beside their oracles."""

from typing import Any

from horosphere.catalogue.entries import BOTH, FLAT, Model, Task

ANY = ("lorentz", "poincare", "euclidean")

TASKS: tuple[Task, ...] = (
    # -- tables
    Task("tables", "horosphere.tasks.tables:Tables", "answer the rows of a table of numbers", "this table"),
    # -- words
    Task("words", "horosphere.tasks.words:Words", "points of words, from the words around them", "this text"),
    # -- texts
    Task("texts", "horosphere.tasks.texts:Texts", "classify texts", "these texts"),
    # -- pairs
    Task("pairs", "horosphere.tasks.pairs:Pairs", "translate sentences", "these sentences"),
    # -- masked
    Task("masked", "horosphere.tasks.masked:Masked", "guess hidden tokens from both sides", "this text"),
    # -- ratings
    Task("ratings", "horosphere.tasks.ratings:RatingsTask", "predict ratings, recommend items", "these ratings"),
    # -- style
    Task(
        "style", "horosphere.tasks.style:Style", "the content of one picture in the style of another", "these pictures"
    ),
    # -- tracks
    Task("tracks", "horosphere.tasks.tracks:Tracks", "follow a box through frames", "these sequences"),
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


def _recurrent(cell: str, title: str, paper: str, notes: tuple[str, ...]) -> Model:
    return Model(
        f"{cell}-lm",
        "language",
        "horosphere.models.recurrent:RecurrentForCausalLM",
        title,
        configure="horosphere.models.recurrent:recurrent_config",
        settings="horosphere.models.recurrent:RecurrentConfig",
        geometries=ANY,
        paper=paper,
        oracle=f"torch.nn.{cell.upper()}",
        notes=notes,
    )


RECURRENT: tuple[Model, ...] = (
    _recurrent("rnn", "RNN language model", "Elman 1990", ("8.09", "8.10", "8.13")),
    _recurrent("gru", "GRU language model", "Cho et al. 2014; curved: Ganea et al. 2018", ("8.11",)),
    _recurrent("lstm", "LSTM language model", "Hochreiter & Schmidhuber 1997", ("8.12",)),
    Model(
        "fflm",
        "language",
        "horosphere.models.recurrent:WindowForCausalLM",
        "Feed-forward language model",
        settings="horosphere.models.recurrent:WindowConfig",
        geometries=ANY,
        paper="Bengio et al. 2003",
        oracle="the trigram, which it must beat",
        notes=("11.12",),
    ),
)

WORDS: tuple[Model, ...] = (
    Model(
        "skip-gram",
        task="words",
        build="horosphere.models.words:SkipGram",
        title="word2vec, skip-gram",
        settings="horosphere.models.words:SkipGramConfig",
        geometries=ANY,
        paper="Mikolov+ 2013",
        oracle="gensim",
        notes=("11.03", "11.06", "11.08", "11.09", "11.10", "11.11", "11.16", "11.17"),
    ),
    Model(
        "cbow",
        task="words",
        build="horosphere.models.words:CBOW",
        title="word2vec, continuous bag of words",
        settings="horosphere.models.words:SkipGramConfig",
        geometries=ANY,
        paper="Mikolov+ 2013",
        oracle="gensim",
        notes=("11.07",),
    ),
    Model(
        "fasttext",
        task="words",
        build="horosphere.models.words:FastText",
        title="fastText",
        settings="horosphere.models.words:FastTextConfig",
        geometries=ANY,
        paper="Bojanowski+ 2017",
        oracle="gensim",
        notes=("11.13",),
    ),
    Model(
        "glove",
        task="words",
        build="horosphere.models.words:GloVe",
        title="GloVe",
        settings="horosphere.models.words:GloVeConfig",
        geometries=ANY,
        paper="Pennington+ 2014",
        notes=("11.04", "11.14", "11.15"),
    ),
)

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
        notes=("8.14", "11.30"),
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
        paper="Vaswani et al. 2017",
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
        paper="Devlin et al. 2019",
        oracle="transformers' BertForPreTraining",
        notes=("11.26", "11.27", "11.28", "11.29"),
    ),
)

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


def _seeing(name: str, task: str, build: str, title: str, **more: Any) -> Model:
    """A network of pixels or objects, whose classifier lives in any geometry."""
    settings = {"settings": "horosphere.models.config:InAnyGeometry", "geometries": ANY}
    return Model(name, task, f"horosphere.models.{build}", title, **{**settings, **more})


SEEING: tuple[Model, ...] = (
    _seeing(
        *("fcn", "pixels", "segmentation:FCN", "FCN"),
        settings="horosphere.models.segmentation:FCNConfig",
        ablations=("skips",),
        paper="Long et al. 2015; Ghadimi Atigh et al. 2022",
        notes=("10.25",),
        parameters=(((3, 11, 128), 11_221_249),),
    ),
    _seeing(
        *("tinyssd", "objects", "tinyssd:TinySSD", "TinySSD"),
        settings="horosphere.models.tinyssd:TinySSDConfig",
        ablations=("negatives",),
        paper="after Liu et al. 2016",
        notes=("10.10", "10.11", "10.12", "10.13", "10.14", "10.15", "10.16"),
        parameters=(((3, 1, 256), 1_010_376),),
    ),
    _seeing(
        *("fast-rcnn", "objects", "detection:FastRCNN", "Fast R-CNN"),
        settings="horosphere.models.detection:RCNNConfig",
        paper="Girshick 2015",
        oracle="torchvision's RoIHeads",
        notes=("10.20",),
        parameters=(((3, 10, 128), 12_270_839),),
    ),
    _seeing(
        *("faster-rcnn", "objects", "detection:faster_rcnn", "Faster R-CNN"),
        settings="horosphere.models.detection:RCNNConfig",
        paper="Ren et al. 2015; Lang et al. 2022",
        oracle="torchvision's FasterRCNN",
        notes=("10.21", "10.22"),
        parameters=(((3, 10, 128), 12_308_742),),
    ),
)

STYLE: tuple[Model, ...] = (
    Model(
        "style",
        "style",
        "horosphere.models.style:Picture",
        "Style transfer",
        settings="horosphere.models.style:StyleConfig",
        paper="Gatys et al. 2016",
        oracle="kornia's total variation; torchvision's VGG-19",
        notes=("10.27", "10.28", "10.29", "10.30", "10.31"),
    ),
)

TRACKS: tuple[Model, ...] = (
    Model(
        "siamfc",
        "tracks",
        "horosphere.models.siamese:SiamFC",
        "SiamFC",
        settings="horosphere.models.siamese:SiamFCConfig",
        paper="Bertinetto et al. 2016",
        oracle="normalised cross-correlation, which it must beat",
        notes=("14.41",),
    ),
)

MODELS = (
    *(*CONVNETS, *TABLES, *RECURRENT, *WORDS, *TEXTS, *PAIRS, *MASKED, *RATINGS),
    *(*SEEING, *STYLE, *TRACKS),
)
