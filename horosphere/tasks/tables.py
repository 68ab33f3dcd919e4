"""Rows of numbers: classes, a number, or the distribution of the rows themselves, as the model answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.order import Part, half
from horosphere.data.tables import Scaling, Schema, Table, asked_rows, open_table
from horosphere.errors import UserError, one_line
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.neighbours import nearest, voted
from horosphere.files import digest
from horosphere.models.rbm import RBM
from horosphere.models.table_model import Sizes, TableModel
from horosphere.models.weights import begin_with
from horosphere.runs import Run
from horosphere.train.answers import Answers, best_of, no_answer, require_one
from horosphere.train.task import Task

NEIGHBOURS = 5  # of the baseline
NATURAL_BATCH = 32


@dataclass(frozen=True, eq=False)
class Rows:
    """Scaled rows and their answers: the number of a class, a scaled number, or 0."""

    x: Tensor  # (N, F)
    y: Tensor  # (N,)

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, eq=False)
class TableData:
    """Rows to learn from and rows held out, and what they were before they were scaled."""

    train: Rows
    valid: Rows
    schema: Schema


@dataclass(frozen=True, eq=False)
class TrainedTable:
    """A model of a table on the CPU, and what it needs to read new rows."""

    network: TableModel
    schema: Schema

    @torch.no_grad()
    def predict(self, rows: ArrayLike) -> list[str] | np.ndarray:
        """The class or the number of each row, as its table had it; of an RBM P(h = 1 | row).   (N, F) -> N"""
        rows = np.asarray(rows, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.schema.columns):
            what = f"{len(self.schema.columns)} columns: {one_line(', '.join(self.schema.columns))}"
            raise UserError(f"rows of shape {tuple(rows.shape)}: the model has learned from {what}")
        out = self.network(self._scaled(rows))
        if self.network.answer == "class":
            return [self.schema.classes[k] for k in out.argmax(1)]
        return self.schema.answers.inverse(out.numpy()) if self.network.answer == "number" else out.numpy()

    def _scaled(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(self.schema.scaling(rows)).to(next(self.network.parameters()).dtype)

    @torch.no_grad()
    def answer(self, inputs: list[str], k: int = 1) -> Answers:
        """The classes of rows, or their number; of an RBM how usual they are. A first line may name the columns."""
        lines, rows = asked_rows(inputs, self.schema.columns)
        if self.network.answer == "class":
            out = self.network(self._scaled(rows)).double()
            out, score = (out.softmax(1), "probability") if self.network.probable else (out, "margin")
            return Answers(self.schema.target or "class", score, lines, best_of(out, self.schema.classes, k))
        require_one(k, "number")
        if self.network.answer == "number":
            what, values = self.schema.target or "number", self.predict(rows)
        else:
            what, values = "pseudo-likelihood", cast(RBM, self.network).pseudo_likelihood(self._scaled(rows)).numpy()
        if not (fine := np.isfinite(np.asarray(values, dtype=np.float64))).all():
            raise no_answer(lines[int(fine.argmin())])
        return Answers(what, None, lines, [[(f"{float(value):.6g}", None)] for value in values])


@dataclass(kw_only=True)
class Tables(Task[TableData]):
    """Every fifth row is held out, of each class where there are classes. Scales are fitted on the others."""

    kind = "tables"
    one_shape = True
    then = "horosphere predict {run} --data ROWS.csv"
    asks = "rows of numbers, as in 5.1,3.5 or --data ROWS.csv"
    metrics = (
        Metric("accuracy", "accuracy", 4, "high", "judged"),
        Metric("rmse", "RMSE", 3, "low", "judged"),
        Metric("pseudo_ll", "pseudo-likelihood", 2, "high", "judged", "nats a row"),
    )

    target: str = "last"  # the column of answers, by its name; last: the last one; none: there is none
    valid: str | None = None  # a table of its own to judge by, with the same columns; none: every fifth row

    # -- data and model ---------------------------------------------------------------------------------------------

    @property
    def learner(self) -> type[TableModel]:
        return cast(type[TableModel], catalogue.resolve(self.network(self.model).build))

    def open_data(self) -> TableData:
        table = open_table(self.data, self.target)
        answers = self._answers(table, table)
        if self.valid is None:
            held = table.held_out(answers if self.learner.answer == "class" else None)
            if not held.any():
                raise UserError(f"{self.data}: {len(table)} rows are too few to hold some out; name others by valid=…")
            parts = [(table.x[mask], answers[mask]) for mask in (~held, held)]
        else:
            other = open_table(self.valid, self.target)
            if other.columns != table.columns:
                raise UserError(f"{self.valid}: other columns than {self.data}; give it the same ones, in their order")
            parts = [(table.x, answers), (other.x, self._answers(other, table))]
        return self._scaled(table, parts)

    def _answers(self, table: Table, known: Table) -> np.ndarray:
        """What the model learns to say: numbers of classes that are known, or numbers.   -> (N,)"""
        if self.learner.answer == "none":
            return np.zeros(len(table))
        if table.answers is None:
            raise UserError(f"target=none: {self.model} learns to answer; name the column of the answers")
        if self.learner.answer == "number":
            return table.numbers
        if strangers := sorted(set(table.answers) - set(known.classes)):
            new = one_line(strangers[0], 60)
            raise UserError(f'{table.source}: the class "{new}" is not in {known.source}; give it the same classes')
        number = {name: i for i, name in enumerate(known.classes)}
        return np.array([number[answer] for answer in table.answers])

    def _scaled(self, table: Table, parts: list[tuple[np.ndarray, np.ndarray]]) -> TableData:
        """Scales are those of the first part, which is learned from."""
        learned, said = parts[0]
        scaling, number = self.learner.scaling(learned), self.learner.answer == "number"
        answers = Scaling.standard(said[:, None]) if number else Scaling(np.zeros(1), np.ones(1))
        kind = np.int64 if self.learner.answer == "class" else np.float32

        def scaled(x: np.ndarray, y: np.ndarray) -> Rows:
            y = answers(y[:, None])[:, 0]
            return Rows(torch.from_numpy(scaling(x).astype(np.float32)), torch.from_numpy(y.astype(kind)))

        classes = table.classes if self.learner.answer == "class" else []
        schema = Schema(table.columns, table.target, classes, scaling, answers, len(learned))
        return TableData(scaled(*parts[0]), scaled(*parts[1]), schema)

    def parted(self, data: TableData, part: Part) -> TableData:
        rows = half(np.arange(len(data.valid)), part)
        return replace(data, valid=Rows(data.valid.x[rows], data.valid.y[rows]))

    def rows(self, data: TableData) -> int:
        return len(data.train)

    def natural_batch(self, data: TableData) -> int:
        return min(NATURAL_BATCH, len(data.train))

    def facts(self, data: TableData) -> dict[str, Any]:
        schema, parts = data.schema, (data.train, data.valid)
        same = digest(*schema.columns, *schema.classes, *(t.numpy().tobytes() for p in parts for t in (p.x, p.y)))
        sizes = {"train": len(data.train), "valid": len(data.valid)}
        return {"rows": sizes, "columns": len(schema.columns), "classes": len(schema.classes), "digest": same}

    def build(self, data: TableData) -> TableModel:
        model = self.built(data.schema)
        if self.start is not None:
            run, mine = Run.open(self.start, self.kind), getattr(self.configuration(), "geometry", None)
            if (theirs := run.about.recipe["model"].get("geometry")) != mine:  # the tensors of some would fit
                what = f"a run in {theirs} space, and this one is {mine}"
                raise UserError(f"start={self.start}: {what}; give one of the same")
            begin_with(model, run.load().network.state_dict(), self.start)
        return model

    def built(self, schema: Schema) -> TableModel:
        answers = {"class": len(schema.classes), "number": 1, "none": 0}[self.learner.answer]
        return self.learner(Sizes(len(schema.columns), answers, schema.rows), self.configuration())

    def begin(self, folder: Path) -> None:
        self.opened.schema.write(folder)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """x (B, F), y (B,), and the noise (B, …) that the model's loss takes."""
        train = self.opened.train
        chosen = torch.from_numpy(self.drawn(step, rows, len(train)))
        shape = self.learner.noise(train.x.shape[1], self.configuration())
        noise = np.zeros((self.engine.batch, 0), dtype=np.float32)
        if shape:  # of the whole batch: how it is shared changes nothing
            random = np.random.default_rng((self.engine.seed, step))
            noise = random.uniform(1e-7, 1 - 1e-7, (self.engine.batch, *shape)).astype(np.float32)
        return {"x": train.x[chosen], "y": train.y[chosen], "noise": torch.from_numpy(noise[rows.start : rows.stop])}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return cast(TableModel, model).loss(batch["x"], batch["y"], batch["noise"]), {}

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        held = self.opened.valid
        x = held.x.to(self.world.device)
        if self.learner.answer == "none":
            return {"pseudo_ll": cast(RBM, model).pseudo_likelihood(x).mean().item()}
        answers = model(x).cpu()
        return self._scores(answers.argmax(1) if self.learner.answer == "class" else answers)

    def _scores(self, answers: Tensor) -> dict[str, float]:
        """How right answers to what is held out are: a class for each row, or a scaled number.   (N,)"""
        y = self.opened.valid.y
        if self.learner.answer == "class":
            return {"accuracy": (answers == y).double().mean().item()}
        error = (answers.double() - y.double()).square().mean().sqrt().item()
        return {"rmse": error * self.opened.schema.answers.scale.item()}

    def baselines(self) -> dict[str, dict[str, float]]:
        """What is had without training: the commonest answer, and that of the nearest rows in the model's geometry."""
        train, valid = self.opened.train, self.opened.valid
        if self.learner.answer == "none":
            alone = cast(RBM, self.built(self.opened.schema))
            alone.independent(train.x)
            with torch.no_grad():
                return {"independent columns": {"pseudo_ll": alone.pseudo_likelihood(valid.x).mean().item()}}
        manifold = self.configuration().manifold()
        known, asked = (manifold.lift(part.x.double()) for part in (train, valid))
        near = train.y[nearest(asked, known, manifold, NEIGHBOURS)[1]]
        if self.learner.answer == "number":
            guesses = {"the mean": train.y.mean().expand(len(valid)), f"{NEIGHBOURS} nearest rows": near.mean(1)}
        else:
            commonest = train.y.mode().values.expand(len(valid))
            classes = len(self.opened.schema.classes)
            guesses = {"the commonest class": commonest, f"{NEIGHBOURS} nearest rows": voted(near, classes)}
        return {name: self._scores(guess) for name, guess in guesses.items()}

    # -- the model of a run -----------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> TableModel:
        return self.built(Schema.read(run.folder))

    def trained(self, network: nn.Module, run: Run) -> TrainedTable:
        return TrainedTable(cast(TableModel, network), Schema.read(run.folder))

    # -- for people -------------------------------------------------------------------------------------------------

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        rows, classes = facts["rows"], f", {facts['classes']} classes" * (facts["classes"] > 0)
        sizes = f"{rows['train']:,} to learn, {rows['valid']:,} to judge, {facts['columns']} columns{classes}"
        return [*super().about(facts), ["rows", sizes]]
