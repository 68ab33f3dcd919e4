"""`make demo`: a real tree in four geometries, a small language model beside its flat twin, and a page that shows what came out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from horosphere.cli.common import print_comparison, require_pictures
from horosphere.data.builtin import trove_classifiers
from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.files import require_new_file
from horosphere.plots.report import Report
from horosphere.plots.tree_report import tree_report
from horosphere.progress import progress
from horosphere.train.compare import compare
from horosphere.train.config import EmbedConfig

CURVED, FLAT = "HELM-MiCE", "DeepSeek-V3"
RECIPES = {CURVED: "helm-mice-tiny", FLAT: "deepseek-tiny"}
STEPS = 240
SETTINGS = [f"steps={STEPS}", f"eval_every={STEPS // 8}", f"save_every={STEPS}", "num_hidden_layers=3"]
PROMPT, TOKENS = "Return the", 60  # what the models go on from, and how far


def demo(out: str | Path, overwrite: bool, quiet: bool) -> None:
    require_new_file(out, overwrite)
    require_pictures()
    graph = trove_classifiers()
    config = EmbedConfig(dim=5, epochs=150)
    print(
        f"PyPI's package classifiers: a tree of {len(graph)} nodes. Four geometries, 5 dimensions, 3 seeds each; about a minute on two cores."
    )
    with progress("comparing", config.epochs * 12, quiet) as update, one_thread():
        comparison = compare(graph, config, progress=update)
    print_comparison(comparison)
    report = tree_report("PyPI's classifiers", graph, comparison)
    try:
        require("language")
    except UserError as error:
        print(f"The demo goes on without its language model: {error}")
    else:
        add_language_models(report, quiet)
    report.save(out)
    print(f"report: {out}")


@contextmanager
def one_thread() -> Iterator[None]:
    """These tensors are too small to share: threads would spend their time waiting for each other, on a busy machine nearly all of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def add_language_models(report: Report, quiet: bool) -> None:
    """HELM-MiCE and its twin, trained side by side on the text that comes with Python."""
    from horosphere.measure.language import first_rows, study, token_counts, token_labels
    from horosphere.plots.language_report import Duel, LanguageRun, add_language
    from horosphere.train.compare_language import Entrant, Training, run_all
    from horosphere.train.language import LanguageRecipe, load, write

    print(
        f"\nPython's documentation: {CURVED}, which lives on the hyperboloid, and its flat twin {FLAT}; about two minutes on two cores."
    )
    corpus = LanguageRecipe.read(RECIPES[CURVED], SETTINGS).corpus(quiet)  # made once, before both look for it
    with TemporaryDirectory(prefix="horosphere.", ignore_cleanup_errors=True) as aside:
        trainings = [
            Training(Entrant(name, recipe), SETTINGS, Path(aside, name), STEPS) for name, recipe in RECIPES.items()
        ]
        with progress("training", STEPS * len(trainings), quiet) as update:
            run_all(trainings, len(trainings), "cpu", False, update)
        models, runs = {}, []
        for training in trainings:
            name = training.entrant.name
            models[name], tokenizer = load(training.folder)
            torch.manual_seed(0)
            sample = write(models[name], tokenizer, PROMPT, TOKENS)
            runs.append(LanguageRun.read(name, training.folder, sample, CURVED if name == FLAT else None))
    duel, size = Duel(*runs), models[CURVED].config.vocab_size
    rows = first_rows(corpus.valid, models[CURVED].config.max_position_embeddings)
    with progress("looking inside", len(rows) * len(models), quiet) as update:
        found = study(
            models, token_labels(corpus.tokenizer, size), token_counts(corpus.train, size), rows, progress=update
        )
    add_language(report, "Python's own documentation", duel, found)
    print_comparison(duel)
