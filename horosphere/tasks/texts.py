"""Classification of texts: tokens in, a class out; beside it what a bag of words does without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.classes import read_classes, write_classes
from horosphere.data.order import Part, evenly, half
from horosphere.data.reviews import Known, TextData, TextOptions, open_texts
from horosphere.data.vocabulary import PAD, SPECIALS, Vocabulary, padded, read_vocabularies, split, write_vocabularies
from horosphere.errors import UserError, one_line
from horosphere.evaluate.metric import Metric
from horosphere.files import digest
from horosphere.models.weights import begin_with
from horosphere.runs import Run
from horosphere.settings import Count, Size
from horosphere.train.answers import Answers, best_of
from horosphere.train.task import Task
from horosphere.train.vectors import Vectors

AT_ONCE = 256  # texts that are judged at once
TEXT = "text"  # the name of the vocabulary in its file


@dataclass(frozen=True, eq=False)
class TrainedTexts:
    """A network on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module
    vocabulary: Vocabulary
    classes: list[str]
    length: int  # tokens after which a text is cut

    @torch.no_grad()
    def classify(self, texts: Sequence[str]) -> list[str]:
        if isinstance(texts, str):  # a sequence too, of letters
            raise UserError(f'classify("{one_line(texts, 40)}"): texts come in a list; write classify(["…"])')
        return [self.classes[number] for number in self._logits(texts).argmax(-1).tolist()] if texts else []

    @torch.no_grad()
    def answer(self, inputs: list[str], k: int = 1) -> Answers:
        """The likeliest classes of texts."""
        return Answers("class", "probability", inputs, best_of(self._logits(inputs).softmax(-1), self.classes, k))

    def _logits(self, texts: Sequence[str]) -> Tensor:
        """-> (N, classes)"""
        rows = [self.vocabulary.encode(text)[: self.length] for text in texts]
        parts = (rows[i : i + AT_ONCE] for i in range(0, len(rows), AT_ONCE))
        tokens = [torch.from_numpy(padded(part, max(1, *map(len, part)))) for part in parts]
        return torch.cat([self.network(part, (part != PAD).sum(1)) for part in tokens])


@dataclass(kw_only=True)
class Texts(Task[TextData]):
    """A row is a text. Padding has no say."""

    kind = "texts"
    unit = "texts"
    then = 'horosphere predict {run} "A TEXT"'
    asks = "texts"
    no_settings = Task.no_settings | {"known"}
    metrics = (Metric("accuracy", "texts right", 4, "high", "judged"),)

    data: str  # .tsv, .csv or .jsonl of labels and texts; builtin:reviews
    valid: str | None = None  # a source of its own; none: a tenth of the data is held out
    tokens: Literal["words", "characters"] = "words"  # a letter of Chinese or Japanese is a word
    least: Count = 2  # times that a token must occur; what is rarer is unknown
    length: Size = 200  # tokens after which a text is cut
    eval_rows: Count = 1024  # texts judged while training; at the end all are
    known: Known | None = field(default=None, repr=False, compare=False)  # by a run

    # -- data and model ---------------------------------------------------------------------------------------------

    def open_data(self) -> TextData:
        return open_texts(self.data, self.valid, TextOptions(self.tokens, self.least, self.length), self.known)

    def parted(self, data: TextData, part: Part) -> TextData:
        return replace(data, valid=half(data.valid, part))

    def rows(self, data: TextData) -> int:
        return len(data.train)

    def facts(self, data: TextData) -> dict[str, Any]:
        arrays = (data.tokens, data.labels, data.train, data.valid)
        same = digest(data.vocabulary.digest(), *data.classes, *(array.tobytes() for array in arrays))
        sizes = {"train": len(data.train), "valid": len(data.valid)}
        return {"texts": sizes, "classes": len(data.classes), "vocabulary": len(data.vocabulary), "digest": same}

    def build(self, data: TextData) -> nn.Module:
        model = self.network_for(data.vocabulary, data.classes)
        if self.start is not None:
            # of a run with other classes all is taken but the classifier: its weight and its bias
            begin_with(model, Run.open(self.start, self.kind).load().network.state_dict(), self.start, missing=2)
        return model

    def network_for(self, vocabulary: Vocabulary, classes: list[str]) -> nn.Module:
        make = catalogue.resolve(self.network(self.model).build)
        return cast(nn.Module, make(len(vocabulary), len(classes), self.configuration()))

    def begin(self, folder: Path) -> None:
        write_vocabularies(folder, {TEXT: self.opened.vocabulary})
        write_classes(folder, self.opened.classes)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """tokens (B, T), lengths (B,), labels (B,). T is the longest of the whole step."""
        together = self.opened.train[self.drawn(step, range(self.engine.batch), len(self.opened.train))]
        return self._tensors(together[rows.start : rows.stop], together)

    def _tensors(self, rows: np.ndarray, together: np.ndarray) -> dict[str, Tensor]:
        """Of these rows, as wide as the longest of all that belong `together`."""
        data = self.opened
        longest = max(1, data.lengths(together).max())
        arrays = {"tokens": data.tokens[rows, :longest], "lengths": data.lengths(rows), "labels": data.labels[rows]}
        return {name: torch.from_numpy(values) for name, values in arrays.items()}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return F.cross_entropy(model(batch["tokens"], batch["lengths"]).float(), batch["labels"]), {}

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """Every process judges all texts alike."""
        rows = self.opened.valid if last else evenly(self.opened.valid, self.eval_rows)
        cost = right = 0.0
        for part in (rows[i : i + AT_ONCE] for i in range(0, len(rows), AT_ONCE)):
            batch = {name: t.to(self.world.device) for name, t in self._tensors(part, part).items()}
            logits = model(batch["tokens"], batch["lengths"]).float()
            cost += F.cross_entropy(logits, batch["labels"], reduction="sum").item()
            right += (logits.argmax(-1) == batch["labels"]).sum().item()
        return {"loss": cost / len(rows), "accuracy": right / len(rows)}

    def baselines(self) -> dict[str, dict[str, float]]:
        """The most frequent class; where scikit-learn is there, logistic regression on tf-idf of tokens and pairs."""
        data = self.opened
        truth = data.labels[data.valid]
        answers: dict[str, Any] = {"most frequent": np.bincount(data.labels[data.train]).argmax()}
        if find_spec("sklearn"):
            answers = {"TF-IDF and logistic regression": self._by_tf_idf(), **answers}
        return {name: {"accuracy": float((answer == truth).mean())} for name, answer in answers.items()}

    def _by_tf_idf(self) -> np.ndarray:
        """Answers to the texts that are held out.   -> (m,)"""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        data = self.opened
        learned, held = ([split(data.texts[row], self.tokens) for row in rows] for rows in (data.train, data.valid))
        features = TfidfVectorizer(tokenizer=list, token_pattern=None, lowercase=False, ngram_range=(1, 2))
        linear = LogisticRegression(max_iter=1000).fit(features.fit_transform(learned), data.labels[data.train])
        return cast(np.ndarray, linear.predict(features.transform(held)))

    # -- the network of a run ---------------------------------------------------------------------------------------

    @classmethod
    def of(cls, run: Run) -> Task[Any]:
        """With what the run knows: other data are read by its vocabulary."""
        return replace(cast(Texts, super().of(run)), known=_known(run.folder))

    def rebuild(self, run: Run) -> nn.Module:
        known = _known(run.folder)
        return self.network_for(known.vocabulary, known.classes)

    def trained(self, network: nn.Module, run: Run) -> TrainedTexts:
        known = _known(run.folder)
        return TrainedTexts(network, known.vocabulary, known.classes, self.length)

    @classmethod
    def vectors(cls, run: Run) -> Vectors:
        """The tokens of the vocabulary, without the special ones."""
        trained: TrainedTexts = cls.load(run)
        table = cast(Any, trained.network.requires_grad_(False)).points
        tokens, real = trained.vocabulary, slice(len(SPECIALS), len(trained.vocabulary))
        counts = {"count": tokens.counts[real]}
        return Vectors(tokens.tokens[real], table.weight[real], table.manifold, columns=counts)

    # -- for people and studies -------------------------------------------------------------------------------------

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        texts = facts["texts"]
        sizes = f"{texts['train']:,} to learn, {texts['valid']:,} to judge, {facts['classes']} classes"
        return [*super().about(facts), ["texts", f"{sizes}, {facts['vocabulary']:,} {self.tokens}"]]


def _known(folder: Path) -> Known:
    return Known(read_vocabularies(folder, [TEXT])[TEXT], read_classes(folder)[0])
