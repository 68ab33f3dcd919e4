"""HELM and its flat twins on the same text, at equal tokens and parameters: does curvature pay?"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horosphere.errors import UserError
from horosphere.files import write_whole
from horosphere.progress import progress
from horosphere.train.trainings import Entrant, Training, run_all, spread

if TYPE_CHECKING:
    from horosphere.data.tokens import Corpus
    from horosphere.train.language import LanguageRecipe

FAMILIES = {
    f"helm-{size}": (f"helm-d-{size}", f"helm-mice-{mixture}")
    for size, mixture in (("tiny", "tiny"), ("small", "small"), ("100m", "120m"))
}
DECIDED = ("model", "geometry", "expert_curvature")  # settings that tell the models apart
INNER = 16  # the dense models' intermediate_size is a multiple of it
RESULTS, CURVES = "results.json", "curves.png"
PAIRS = (("HELM-D", "Llama", "dense"), ("HELM-MiCE", "DeepSeek-V3", "mixture"))  # curved, flat


def entrants(family: str) -> list[Entrant]:
    """The five models of a family."""
    from horosphere.models.helm import TWINS

    dense, mixture = FAMILIES[family]
    twins = {helm: twin for twin, helm in TWINS.items()}
    return [
        Entrant("HELM-D", dense),
        Entrant("Llama", twins[dense], twin_of="HELM-D"),
        Entrant("HELM-MiCE", mixture),
        Entrant("MiCE-Const", mixture, ("expert_curvature=constant",)),
        Entrant("DeepSeek-V3", twins[mixture], twin_of="HELM-MiCE"),
    ]


# -- what came out ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One model over the seeds."""

    name: str
    twin_of: str | None
    parameters: int
    bits_per_byte: list[float]  # of each seed, at the end, on all of the validation text
    milliseconds: float  # a step, the median
    tokens: list[int]  # read in training at each evaluation
    curve: list[float]  # bits per byte there, mean of the seeds
    blimp: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.bits_per_byte)

    @property
    def spread(self) -> float:
        """Standard deviation over seeds."""
        return spread(self.bits_per_byte)


@dataclass(frozen=True)
class LanguageComparison:
    """Rows from the fewest bits per byte to the most."""

    rows: list[Row]
    seeds: int
    tokens: int  # each model has read

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and cells of the table a person reads."""

        def cell(values: Sequence[float], digits: int) -> str:
            return f"{statistics.fmean(values):.{digits}f}" + (
                f" ± {spread(values):.{digits}f}" if self.seeds > 1 else ""
            )

        heads = ["model", "parameters", "bits/byte ↓", *["BLiMP ↑"] * bool(self.rows[0].blimp), "ms/step"]
        rows = []
        for row in self.rows:
            blimp = [cell(row.blimp, 3)] if row.blimp else []
            rows.append(
                [row.name, f"{row.parameters:,}", cell(row.bits_per_byte, 4), *blimp, f"{row.milliseconds:.0f}"]
            )
        return heads, rows

    def verdict(self) -> str:
        """What the table says, and no more than it says."""
        if self.seeds < 2:
            return f"1 seed: {self.rows[0].name} has the fewest bits per byte, but one run says nothing about chance. Pass --seeds 3."
        rows = {row.name: row for row in self.rows}
        said = [_between(rows[a], rows[b]) for a, b in [(a, b) for a, b, _ in PAIRS] + [("HELM-MiCE", "MiCE-Const")]]
        pays = [kind for a, b, kind in PAIRS if beats(rows[a], rows[b])]
        end = {0: "Curvature does not pay on this text.", len(PAIRS): "Curvature pays on this text."}
        return f"{self.seeds} seeds. {' '.join(said)} " + end.get(
            len(pays), f"Curvature pays on this text in the {' and '.join(pays)} model only."
        )

    def save(self, folder: Path) -> None:
        """results.json and curves.png"""
        from horosphere.plots.language import Curve, draw_curves

        about = {
            "seeds": self.seeds,
            "tokens": self.tokens,
            "verdict": self.verdict(),
            "rows": [asdict(row) for row in self.rows],
        }
        write_whole(folder / RESULTS, (json.dumps(about, indent=2) + "\n").encode())
        draw_curves({row.name: Curve(row.tokens, row.curve, row.twin_of) for row in self.rows}, folder / CURVES)


def beats(a: Row, b: Row) -> bool:
    """Beyond the spread of seeds: the means are farther apart than the two standard deviations together."""
    return b.mean - a.mean > a.spread + b.spread


def _between(a: Row, b: Row) -> str:
    if beats(a, b) or beats(b, a):
        winner, loser = (a, b) if beats(a, b) else (b, a)
        return f"{winner.name} beats {loser.name} beyond the spread of seeds."
    return f"{a.name} and {b.name} are within the spread of seeds of each other."


# -- the comparison ---------------------------------------------------------------------------------------------------


def compare_language(
    family: str,
    settings: Sequence[str],
    out: str | Path,
    seeds: int = 2,
    jobs: int = 1,
    device: str = "cpu",
    blimp: str | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> LanguageComparison:
    """Train the five models of a family with every seed, each in a process of its own and a folder below `out`, `jobs` at a time.

    A comparison that was stopped goes on where it was; runs that are done stay.
    """
    from horosphere.evaluate.choice import read_task
    from horosphere.train.language import LanguageRecipe

    for setting in settings:
        if setting.partition("=")[0].strip() in DECIDED:
            raise UserError(
                f"{setting}: this is what the compared models differ in; leave it out, or train one model with it"
            )
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: --out takes the name of a folder here")
    if blimp is not None:
        read_task("blimp", blimp)  # a complaint should come before the training
    recipes = {
        entrant: LanguageRecipe.read(entrant.recipe, [*settings, *entrant.settings]) for entrant in entrants(family)
    }
    corpus = next(iter(recipes.values())).corpus(quiet)
    inner = matched_size(recipes, corpus)
    trainings = []
    for seed in range(seeds):
        for entrant, recipe in recipes.items():
            dense = [f"intermediate_size={inner}"] if not _is_mixture(recipe) else []
            chosen = [*settings, *entrant.settings, *dense, f"seed={recipe.engine.seed + seed}"]
            trainings.append(
                Training(
                    entrant, chosen, out / f"{entrant.name.lower()}-{recipe.engine.seed + seed}", recipe.engine.steps
                )
            )
    with progress("training", sum(t.steps for t in trainings), quiet) as update:
        run_all(trainings, jobs, device, overwrite, update)
    rows = [_row(entrant, [t for t in trainings if t.entrant == entrant]) for entrant in recipes]
    if blimp is not None:
        rows = [
            replace(row, blimp=[_blimp(t.folder, blimp, device) for t in trainings if t.entrant.name == row.name])
            for row in rows
        ]
    recipe = next(iter(recipes.values()))
    found = LanguageComparison(
        sorted(rows, key=lambda row: row.mean), seeds, recipe.engine.steps * recipe.engine.batch * recipe.length
    )
    found.save(out)
    return found


def matched_size(recipes: dict[Entrant, LanguageRecipe], corpus: Corpus) -> int:
    """The intermediate_size with which the dense models have as many parameters as the mixtures."""
    dense, mixture = (next(r for r in recipes.values() if _is_mixture(r) is wanted) for wanted in (False, True))
    target = _parameters(mixture, corpus)
    least, more = (_parameters(dense, corpus, intermediate_size=INNER * times) for times in (1, 2))
    return INNER * max(1, 1 + round((target - least) / (more - least)))


def _parameters(recipe: LanguageRecipe, corpus: Corpus, **changes: Any) -> int:
    import torch

    from horosphere.models.helm import HelmForCausalLM

    with torch.device("meta"):
        return int(
            HelmForCausalLM(replace(recipe, config={**recipe.config, **changes}).model_config(corpus)).num_parameters()
        )


def _is_mixture(recipe: LanguageRecipe) -> bool:
    from horosphere.models.helm import helm_config

    return bool(helm_config(recipe.model, **recipe.config).n_routed_experts)


def _row(entrant: Entrant, trainings: Sequence[Training]) -> Row:
    runs = [training.metrics() for training in trainings]
    evaluated = [[line for line in run if "eval_bits_per_byte" in line] for run in runs]
    about = json.loads((trainings[0].folder / "run.json").read_text(encoding="utf-8"))
    a_step = about["training"]["batch"] * about["recipe"]["length"]
    curves = [[line["eval_bits_per_byte"] for line in lines] for lines in evaluated]
    pace = statistics.median(line["tokens_per_second"] for run in runs for line in run if "tokens_per_second" in line)
    return Row(
        name=entrant.name,
        twin_of=entrant.twin_of,
        parameters=about["recipe"]["parameters"],
        bits_per_byte=[curve[-1] for curve in curves],
        milliseconds=1000 * a_step / pace,
        tokens=[line["step"] * a_step for line in evaluated[0]],
        curve=[statistics.fmean(values) for values in zip(*curves, strict=True)],
    )


def _blimp(run: Path, file: str, device: str) -> float:
    from horosphere.evaluate.choice import evaluate_task
    from horosphere.train.language import autocast, load

    model, tokenizer = load(run)
    with autocast(device):
        return evaluate_task("blimp", file, model.to(device), tokenizer, device).score.acc.value
