"""What a kind of learning is: what it gives the engine, and what it says of itself to people and to studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue, settings
from horosphere.data.order import Part, alike, shuffled
from horosphere.errors import UserError, one_line
from horosphere.evaluate.metric import Metric
from horosphere.files import write_whole
from horosphere.models.weights import WEIGHTS, load_weights
from horosphere.optim import make_optimizer, param_groups
from horosphere.runs import Run
from horosphere.train import checkpoint
from horosphere.train.answers import Answers
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World
from horosphere.train.vectors import Vectors

if TYPE_CHECKING:
    from horosphere.train.recipe import Recipe

Data = TypeVar("Data")


@dataclass(frozen=True)
class CompareOptions:
    """What a comparison can be asked for besides settings of its runs. A task may have more."""

    geometries: tuple[str, ...] = ()  # those to compare, separated by commas; none: all that the model has


@dataclass(kw_only=True)
class Task(Generic[Data]):
    """A subclass is a dataclass in the catalogue. Its fields are its settings, and the comments beside them their help.

    A training calls `check`, `open_data`, `build`, `ready`, `begin`; in every step `batch` and `loss`; now and then
    `evaluate` and `sample`; at the end `export`. `open_data` knows the task's `world`, `build` its `engine` too.
    """

    kind: ClassVar[str]  # its name in the catalogue
    metrics: ClassVar[tuple[Metric, ...]] = ()  # of `evaluate`, those that people are shown, the most telling first
    unit: ClassVar[str] = "rows"  # what throughput counts
    one_shape: ClassVar[bool] = False  # all batches have the same shapes: blocks are compiled for theirs, and no others
    options: ClassVar[type[CompareOptions]] = CompareOptions  # of `horosphere compare`
    then: ClassVar[str] = ""  # what to do next with a {run}
    asks: ClassVar[str] = ""  # what an input is that a trained model answers, for `predict`; "": it answers none
    best: ClassVar[int] = 1  # answers to an input, where nobody asks for more
    mark: ClassVar[str] = WEIGHTS  # the last file of an export: where it is, all are
    alone: ClassVar[str] = ""  # why one process trains it; "": several may
    counts_work: ClassVar[bool] = False  # its steps are products that torch can count, for tables of studies
    floor: ClassVar[str] = ""  # the baseline that a training has to leave behind to have learned anything
    sizes: ClassVar[str] = "widths"  # what sizes of its models are called: --widths or --dims of `compare`
    measures_before = False  # scores are taken before the first step too
    no_settings: ClassVar[frozenset[str]] = frozenset({"config"})

    model: str  # a name in the catalogue
    data: str  # where to learn from
    start: str | None = None  # a run whose weights this one begins with
    judged_on: Part = "all"  # the part of what is held out that scores are of: studies tune on one, judge on the other
    config: dict[str, Any] = field(default_factory=dict)  # changes of the network's named configuration

    engine: EngineConfig = field(init=False, repr=False, compare=False)
    world: World = field(init=False, repr=False, compare=False, default_factory=World)
    quiet: bool = field(init=False, repr=False, compare=False, default=True)

    # -- before the training ----------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        """Complain about settings that do not go together. Types and ranges are checked already."""

    def open_data(self) -> Data:
        raise NotImplementedError

    def in_part(self, data: Data) -> Data:
        """The data with that part of what is held out which `judged_on` names."""
        return data if self.judged_on == "all" else self.parted(data, self.judged_on)

    def parted(self, data: Data, part: Part) -> Data:
        """The data with one half of what is held out, "tuning" or "rest"."""
        what = f"the task {self.kind} holds nothing out that could be parted"
        raise UserError(f"judged_on={part}: {what}; leave it out, and compare without --tune")

    def rows(self, data: Data) -> int:
        """How many rows there are to learn from, for `epochs`."""
        return len(data)  # type: ignore[arg-type]

    def natural_batch(self, data: Data) -> int:
        """Rows of a step, where `batch` is not given."""
        raise UserError("batch must be given; add batch=…")

    def facts(self, data: Data) -> dict[str, Any]:
        """What data turned out to be: sizes, for people, and for a resumed run to find unchanged."""
        return {}

    def build(self, data: Data) -> nn.Module:
        """The model with the weights it begins with."""
        raise NotImplementedError

    def ready(self, data: Data) -> None:
        """Keep what batches are made of: by itself the data, as `opened`."""
        self.opened = data

    def begin(self, folder: Path) -> None:
        """Write what the model cannot be used without: a tokenizer, names of classes. The main process only."""

    # -- in the training --------------------------------------------------------------------------------------------

    @property
    def units_per_row(self) -> int:
        return 1

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """These rows of the global batch of a step, on the CPU or on the device already. A pure function."""
        raise NotImplementedError

    def drawn(self, step: int, rows: range, count: int) -> np.ndarray:
        """Which of `count` examples these rows are: all of them in a new order, again and again.   -> (len(rows),)"""
        first = step * self.engine.batch
        return shuffled(count, first + rows.start, first + rows.stop, self.engine.seed)

    def drawn_alike(self, step: int, lengths: np.ndarray) -> np.ndarray:
        """Which examples of these lengths the rows of a step are, all about as long.   (N,) -> (batch,)"""
        return alike(lengths, step, self.engine.batch, self.engine.seed)

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over the rows, a scalar to back-propagate, and detached scalars to log, means as well."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """Called in every process, without gradient; `last`: at the end of the run."""
        raise NotImplementedError

    def readings(self, model: nn.Module) -> dict[str, float]:
        """Numbers about the model itself, logged beside its scores: how it came to be what it is.

        Called in every process, without gradient.
        """
        return {}

    def baselines(self) -> dict[str, dict[str, float]]:
        """{method: {metric: score}} of methods without a training, on the same data, to be shown beside the model.

        The main process asks once, at the end of a run.
        """
        return {}

    def sample(self, model: nn.Module) -> str | None:
        """Something to look at. Called in every process, because a sharded model needs them all."""
        return None

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """What is compiled and sharded one by one: a model says it itself."""
        return model.blocks() if hasattr(model, "blocks") else []  # type: ignore[operator]

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        """Whether the loss may be replayed as a CUDA graph: no word to the host, no shape that depends on values."""
        return False

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Which parameters learn alike, as an optimizer takes them."""
        return param_groups(model, self.engine.weight_decay)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The one that was asked for. A group's `lr_scale` multiplies its learning rate."""
        engine = self.engine
        return make_optimizer(engine.optimizer, self.groups(model), engine.lr, engine.betas, engine.momentum)

    # -- after the training -----------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> nn.Module:
        """The model of a run, with new weights. By itself it looks at the data again; better, at what `begin` wrote."""
        return replace(self, start=None).build(self.open_data())

    def answering(self, model: nn.Module) -> nn.Module:
        """What is used of a trained model, and exported: all of it."""
        return model

    def trained(self, network: nn.Module, run: Run) -> Any:
        """What `Run.load` gives: the network with what it was trained for."""
        return network

    @classmethod
    def require_inputs(cls, run: Run) -> None:
        """Complain where a run answers no inputs."""
        if not cls.asks:
            use = f"use `{cls.then.format(run=run.folder)}`" if cls.then else "Run.open(…).load() gives it to Python"
            raise UserError(f"{run.folder}: a run of the task {cls.kind}, which answers no inputs; {use}")

    @classmethod
    def predict(cls, run: Run, inputs: Sequence[str], k: int | None = None) -> Answers:
        """The k best answers of a run's model to inputs as people write them: `answer` of what `load` gives."""
        cls.require_inputs(run)
        if not inputs or not all(given.strip() for given in inputs):
            raise UserError(f"{run.folder}: {'an empty input' if inputs else 'no input'}; give {cls.asks}")
        answers: Answers = cls.load(run).answer(list(inputs), k or cls.best)
        return answers

    @classmethod
    def vectors(cls, run: Run) -> Vectors:
        """Labels and points of a run, for `horosphere explore` and `horosphere export`."""
        raise UserError(f"{run.folder}: a run of the task {cls.kind}, which learns no labelled points")

    def export(self, folder: Path, network: nn.Module) -> None:
        """The weights to use, beside the checkpoints, in the main process."""
        from safetensors.torch import save

        write_whole(folder / WEIGHTS, save({name: t.contiguous() for name, t in network.state_dict().items()}))

    def read_export(self, network: nn.Module, folder: Path) -> None:
        load_weights(network, folder / WEIGHTS)

    @classmethod
    def load(cls, run: Run) -> Any:
        task = cls.of(run)
        return task.trained(task.network_of(run), run)

    def network_of(self, run: Run) -> nn.Module:
        """With the exported weights of a run, else the last checkpoint's."""
        if not (run.folder / self.mark).is_file():
            return self.from_checkpoint(run)
        network = self.answering(self.rebuild(run).eval())
        self.read_export(network, run.folder)
        return network

    @classmethod
    def of(cls, run: Run) -> Task[Any]:
        """The task of a run, with its settings."""
        where, sections = str(run.folder), run.about.recipe
        try:
            task = settings.build(cls, sections["task"], where)
            entry = cls.network(cls.configured(sections["task"]))
            known = catalogue.resolve(entry.settings) if entry.settings else None
            (config,) = settings.assign((known,), sections["model"], where) if known else ({},)
            return replace(task, config=config)
        except (TypeError, UserError) as error:
            how = "train the model again"
            raise UserError(f"{run.folder}: a run of another version ({one_line(error)}); {how}") from error

    def from_checkpoint(self, run: Run) -> nn.Module:
        model = self.rebuild(run).eval()
        checkpoint.restore(run.checkpoint(), model, World())
        return self.answering(model)

    # -- for people and studies --------------------------------------------------------------------------------------

    def configuration(self) -> Any:
        """The whole configuration of the network, changes included; None where it has none."""
        entry = self.network(self.configured(vars(self)))
        if entry.configure:
            return catalogue.resolve(entry.configure)(entry.name, **self.config)
        return catalogue.resolve(entry.settings)(**self.config) if entry.settings else None

    @classmethod
    def network(cls, name: str) -> catalogue.Model:
        """What the catalogue says of the network that `configured` names."""
        return catalogue.model(name, cls.kind)

    @classmethod
    def configured(cls, given: Mapping[str, Any]) -> Any:
        """Of settings, the name of the network whose configuration can be changed."""
        return given.get("model")

    def sections(self) -> dict[str, dict[str, Any]]:
        """The settings as run.json keeps them: those of the task, and the whole configuration of the network."""
        config = self.configuration()
        return {"task": settings.values_of(self), "model": {} if config is None else settings.values_of(config)}

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        """Rows for people: what was trained on what."""
        return [["model", f"{self.model}, {facts['parameters']:,} parameters"]]

    def summary(self, run: Run) -> list[list[str]]:
        """Rows for a terminal or a page: what was trained, how good it is, how long it took."""
        scores = run.scores()
        last = max(line.get("seconds", 0.0) for line in run.lines())
        rows = self.about(run.about.facts)
        rows += [[metric.title, metric.show(scores[metric.name])] for metric in self.metrics if metric.name in scores]
        for name, beside in run.baselines().items():
            told = [f"{m.title} {beside[m.name]:.{m.digits}f}" for m in self.metrics if m.name in beside]
            rows.append(["beside it", f"{name}: {', '.join(told)}"])
        return [*rows, ["training", f"{last:.1f} s, {last / scores['step'] * 1e3:.0f} ms a step with all evaluations"]]

    def comparison(self, options: CompareOptions) -> catalogue.Comparison:
        """Who is compared with whom."""
        return catalogue.comparison_of(catalogue.model(self.model, self.kind), options.geometries)

    @classmethod
    def evened(cls, recipes: Mapping[str, Recipe]) -> dict[str, list[str]]:
        """Settings that make the entrants of a study alike in size, by name."""
        return {}

    def sized(self, size: int) -> list[str]:
        """Settings that make the model so large, for a sweep over `sizes`. Its configuration says them."""
        config = self.configuration()
        if not hasattr(config, "sized"):
            raise UserError(f"--{self.sizes}: {self.model} has no one number for its size; leave it out")
        return [f"{name}={value}" for name, value in config.sized(size).items()]

    def check_study(self, options: CompareOptions, data: Data) -> None:
        """Complain before the trainings."""

    @classmethod
    def judge(cls, run: Run, options: CompareOptions, device: str) -> dict[str, float]:
        """Scores of a finished run beyond those of its last evaluation."""
        return {}

    @classmethod
    def examine(cls, runs: Mapping[str, Run]) -> Any:
        """What instruments see in finished runs of a study: what the catalogue's `drawer` adds to its page."""
        return None
