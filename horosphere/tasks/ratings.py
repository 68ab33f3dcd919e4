"""What people rate, and what they take next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.ratings import (
    ItemRows,
    Ratings,
    by_label,
    last_held_out,
    open_ratings,
    random_split,
    read_learned,
    write_learned,
)
from horosphere.errors import UserError, one_line
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.ranking import Places, auc, hit_at, ndcg_at, places
from horosphere.geometry import Manifold
from horosphere.models.neighbours import means, neighbours
from horosphere.models.recommend import AutoRec, MatrixFactorisation, NeuMF
from horosphere.models.weights import begin_with
from horosphere.runs import Run
from horosphere.settings import Share, Size
from horosphere.train.answers import Answers
from horosphere.train.config import EngineConfig
from horosphere.train.task import Task
from horosphere.train.vectors import Vectors

SAMPLED = 99  # items that the one taken is set among, in the protocol of He et al. 2017
PAIRS = 2**18  # scores at once: a perceptron keeps hundreds of numbers for each
MOST = 10_000  # users or items whose neighbours are found: all pairs of them are in memory


@dataclass(frozen=True, eq=False)
class RatingData:
    learned: Ratings
    held: Ratings

    @cached_property
    def rows(self) -> ItemRows:
        return ItemRows(self.learned)

    @property
    def scale(self) -> tuple[float, float]:
        """Predictions are cut to it."""
        return self.learned.scale


@dataclass(kw_only=True)
class RatingsTask(Task[RatingData]):
    """Models of ratings are judged by a random share of them, models of rankings by the last item of each user.

    Hit@10 is among all items that the user has not rated; "of 100" is among 99 of them, drawn at random.
    """

    kind = "ratings"
    unit = "ratings"
    then = "horosphere predict {run} USER"
    asks = "users, as the data name them"
    best = 10
    alone = "tables of users and items are trained by one process"
    metrics = (
        Metric("rmse", "RMSE", 4, "low", "judged"),
        Metric("hit10", "Hit@10", 4, "high", "judged", "among all items not rated"),
        Metric("auc", "AUC", 4, "high", "judged"),
        Metric("ndcg10", "NDCG@10", 4, "high"),
        Metric("hit10_of_100", "Hit@10 of 100", 4, "high", "shown", "among 99 drawn at random"),
    )

    model: str = "mf"
    scale: tuple[float, float] | None = None  # the least and the highest rating there may be; none: any
    held: Share = 0.1  # share of the ratings that is held out, where ratings are learned
    negatives: Size = 4  # items a user has not rated, drawn beside each one that was, where a ranking is learned

    @property
    def learns(self) -> str:
        return str(catalogue.resolve(self.network(self.model).build).learns)

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        if self.scale is not None and not self.scale[0] < self.scale[1]:
            least, most = (f"{value:g}" for value in self.scale)
            raise UserError(f"scale={least},{most}: give the least rating first, then the highest, as in scale=1,5")

    def open_data(self) -> RatingData:
        ratings = open_ratings(self.data, self.scale)
        if self.learns != "ranking":
            learned, held = random_split(ratings, self.held)
        else:
            learned, held = last_held_out(ratings)
            if (ratings.seen.counts == len(ratings.items)).any():
                user = one_line(ratings.users[ratings.seen.counts.argmax()])
                raise UserError(f"{self.data}: {user} has rated every item, and none is left to rank; leave them out")
        if not len(held):
            how = "give users more ratings than one" + (f", or raise held={self.held:g}" * (self.learns != "ranking"))
            raise UserError(f"{self.data}: no rating is held out to judge by; {how}")
        return RatingData(learned, held)

    def rows(self, data: RatingData) -> int:
        return len(data.learned.items if self.learns == "rows" else data.learned)

    def natural_batch(self, data: RatingData) -> int:
        """Sixteen ratings of each item, or a sixteenth of the items."""
        return max(16, len(data.learned.items) // 16) if self.learns == "rows" else 1024

    def facts(self, data: RatingData) -> dict[str, Any]:
        sizes = {"users": len(data.learned.users), "items": len(data.learned.items)}
        digests = {"digest": data.learned.digest, "held_digest": data.held.digest}
        return {**sizes, "ratings": len(data.learned), "judged": len(data.held), **digests}

    def build(self, data: RatingData) -> nn.Module:
        model = self._network(data.learned)
        if self.start is not None:
            run, mine = Run.open(self.start, self.kind), self.configuration().geometry
            if (theirs := run.about.recipe["model"].get("geometry")) != mine:
                raise UserError(
                    f"start={self.start}: a run in {theirs} space, and this one is {mine}; give one of the same"
                )
            begin_with(model, run.load().network.state_dict(), self.start)
        return model

    def _network(self, learned: Ratings) -> nn.Module:
        mean = 0.0 if self.learns == "ranking" else float(learned.rating.mean(dtype=np.float64))
        make = catalogue.resolve(self.network(self.model).build)
        return cast(nn.Module, make(len(learned.users), len(learned.items), mean, self.configuration()))

    def begin(self, folder: Path) -> None:
        write_learned(folder, self.opened.learned)

    # -- in the training --------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """user (B,), item (B, 1) and rating (B, 1); or item (B, 1 + negatives), the first taken; or rows and there."""
        learned = self.opened.learned
        chosen = self.drawn(step, rows, self.rows(self.opened))
        if self.learns == "rows":
            given, there = self.opened.rows(chosen)
            return {"rows": torch.from_numpy(given), "there": torch.from_numpy(there)}
        user, item = (torch.from_numpy(part[chosen]) for part in (learned.user, learned.item))
        if self.learns == "ratings":
            return {"user": user, "item": item[:, None], "rating": torch.from_numpy(learned.rating[chosen])[:, None]}
        others = torch.from_numpy(self._negatives(step)[rows.start : rows.stop])
        return {"user": user, "item": torch.cat([item[:, None], others], 1)}

    def _negatives(self, step: int) -> np.ndarray:
        """Of the whole batch of a step, however it is shared.   -> (batch, negatives)"""
        chosen = self.drawn(step, range(self.engine.batch), len(self.opened.learned))
        random = np.random.default_rng((self.engine.seed, step))
        return self.opened.learned.seen.draw(self.opened.learned.user[chosen], self.negatives, random)

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Of rows, the mean over ratings, with a fixed number of them an item: however a batch is cut."""
        loss = model.loss(**batch)  # type: ignore[operator]
        return loss / (len(self.opened.learned) / len(self.opened.learned.items) if self.learns == "rows" else 1), {}

    # -- scores -----------------------------------------------------------------------------------------------------

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        if self.learns == "ranking":
            return self.ranked(lambda users: every_item(model, self.opened, users))
        held = self.opened.held
        return {"rmse": self.rmse(predictions(model, self.opened, held.user, held.item))}

    def rmse(self, predicted: np.ndarray) -> float:
        """Of predictions for what was held out, cut to the scale.   (N,) -> ()"""
        error = predicted.clip(*self.opened.scale) - self.opened.held.rating
        return float(np.sqrt(np.square(error, dtype=np.float64).mean()))

    def ranked(self, scores: Callable[[np.ndarray], Tensor]) -> dict[str, float]:
        """Of a function that scores all items for users (B,) -> (B, I)."""
        data = self.opened
        among_all, among_few = [], []
        for rows in pieces(len(data.held), len(data.held.items)):
            user, target = data.held.user[rows], torch.from_numpy(data.held.item[rows])
            found, unseen = scores(user).float().cpu(), torch.from_numpy(~data.learned.seen.mask(user))
            among_all.append(places(found, target, unseen))
            among_few.append(places(found, target, self._few(unseen, target, user)))
        placed, few = map(_joined, (among_all, among_few))
        more = {"ndcg10": ndcg_at(placed, 10), "hit10_of_100": hit_at(few, 10)}
        return {"hit10": hit_at(placed, 10), "auc": auc(placed), **more}

    @staticmethod
    def _few(unseen: Tensor, target: Tensor, user: np.ndarray) -> Tensor:
        """Items that are drawn for each user, the same in every run.   (B, I) bool -> (B, I) bool"""
        chance = np.stack([np.random.default_rng(int(number)).random(unseen.shape[1]) for number in user])
        drawn = torch.from_numpy(chance).masked_fill(~unseen, -1.0).scatter(1, target[:, None], -1.0)
        best, which = drawn.topk(min(SAMPLED, drawn.shape[1]))
        return torch.zeros_like(unseen).scatter(1, which, best >= 0)

    def baselines(self) -> dict[str, dict[str, float]]:
        data = self.opened
        if self.learns == "ranking":
            counts = torch.from_numpy(np.bincount(data.learned.item, minlength=len(data.learned.items)))
            return {"popularity": self.ranked(lambda users: counts.expand(len(users), -1))}
        user, item = data.held.user, data.held.item
        kinds: dict[str, tuple[str, ...]] = {
            "mean": (),
            "mean of the user": ("user",),
            "mean of the item": ("item",),
            "both means": ("user", "item"),
        }
        found = {name: means(data.learned, of)(user, item) for name, of in kinds.items()}
        if max(len(data.learned.users), len(data.learned.items)) <= MOST:
            found["neighbours of the user"] = neighbours(data.learned.swapped, item, user)
            found["neighbours of the item"] = neighbours(data.learned, user, item)
        return {name: {"rmse": self.rmse(predicted)} for name, predicted in found.items()}

    # -- the recommender of a run -----------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> nn.Module:
        return self._network(read_learned(run.folder))

    def trained(self, network: nn.Module, run: Run) -> Recommender:
        learned = read_learned(run.folder)
        return Recommender(network, RatingData(learned, learned.part(np.arange(0))))

    @classmethod
    @torch.no_grad()
    def vectors(cls, run: Run) -> Vectors:
        """The items, and the users where they are points too: where a score is a distance."""
        trained: Recommender = cls.load(run)
        network, learned = trained.network.requires_grad_(False), trained.data.learned
        points, times = [item_points(network, trained.data)], [learned.item]
        sides = [("item", trained.items)]
        if isinstance(network, MatrixFactorisation) and network.config.score == "distance":
            points, times = [*points, network.user.weight], [*times, learned.user]
            sides.append(("user", trained.users))
        columns: dict[str, list[Any]] = {
            "kind": [kind for kind, names in sides for _ in names],
            "ratings": [n for (_, names), of in zip(sides, times, strict=True) for n in counted(of, len(names))],
        }
        labels = [name for _, names in sides for name in names]
        return Vectors(labels, torch.cat(points), cast(Manifold, network.manifold), columns=columns)

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        sizes = f"{facts['users']:,} users, {facts['items']:,} items, {facts['ratings']:,} ratings"
        by = "the last item of each user" if self.learns == "ranking" else "drawn at random"
        return [*super().about(facts), ["data", sizes], ["judged by", f"{facts['judged']:,} held out, {by}"]]


@dataclass(frozen=True, eq=False)
class Recommender:
    """A trained model, and who its users and items are."""

    network: nn.Module
    data: RatingData

    @property
    def users(self) -> list[str]:
        return self.data.learned.users

    @property
    def items(self) -> list[str]:
        return self.data.learned.items

    @torch.no_grad()
    def recommend(self, user: str | int, k: int = 10) -> list[tuple[str, float]]:
        """The k items of the highest scores among those that this user has not rated."""
        number = np.array([by_label(self.users, user, "user")])
        scores = every_item(self.network, self.data, number)[0].float().cpu()
        scores = scores.masked_fill(torch.from_numpy(self.data.learned.seen.mask(number)[0]), -torch.inf)
        best = scores.topk(min(k, int(scores.isfinite().sum())))
        return [(self.items[n], value) for n, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)]

    def answer(self, inputs: list[str], k: int = 10) -> Answers:
        """What users, by their names in the data, would like most of what they have not rated."""
        return Answers("item", "score", inputs, [list(self.recommend(user.strip(), k)) for user in inputs])

    @torch.no_grad()
    def similar(self, item: str | int, k: int = 10) -> list[tuple[str, float]]:
        """The k items nearest to this one, and how far they are."""
        number = by_label(self.items, item, "item")
        points = item_points(self.network, self.data)
        far = cast(Manifold, self.network.manifold).dist(points[number], points)
        far[number] = torch.inf
        near = far.topk(min(k, len(far) - 1), largest=False)
        return [(self.items[n], value) for n, value in zip(near.indices.tolist(), near.values.tolist(), strict=True)]


# -- what models answer, piece by piece -------------------------------------------------------------------------------


def pieces(count: int, width: int) -> list[slice]:
    """Of so many rows, as many at once as their width allows."""
    rows = max(1, PAIRS // width)
    return [slice(i, min(i + rows, count)) for i in range(0, count, rows)]


def predictions(model: nn.Module, data: RatingData, user: np.ndarray, item: np.ndarray) -> np.ndarray:
    """Ratings of users and items.   (N,), (N,) -> (N,)"""
    found = np.empty(len(user), dtype=np.float32)
    if isinstance(model, AutoRec):
        for rows, given in row_pieces(data, model):
            mine = (item >= rows.start) & (item < rows.stop)
            found[mine] = model(given).float().cpu().numpy()[item[mine] - rows.start, user[mine]]
        return found
    device = next(model.parameters()).device
    for rows in pieces(len(user), 1):
        here, there = (torch.from_numpy(numbers[rows]).to(device) for numbers in (user, item))
        found[rows] = model(here, there[:, None])[:, 0].float().cpu().numpy()
    return found


def every_item(model: nn.Module, data: RatingData, users: np.ndarray) -> Tensor:
    """Scores of all items for these users.   (B,) -> (B, I)"""
    chosen = torch.from_numpy(users).to(next(model.parameters()).device)
    if isinstance(model, AutoRec):
        return torch.cat([model(given)[:, chosen] for _, given in row_pieces(data, model)]).T
    return cast("MatrixFactorisation | NeuMF", model).every(chosen)


def item_points(model: nn.Module, data: RatingData) -> Tensor:
    """(I, d)"""
    if isinstance(model, AutoRec):
        return torch.cat([model.code(given) for _, given in row_pieces(data, model)])
    return cast("MatrixFactorisation | NeuMF", model).item_points()


def counted(numbers: np.ndarray, size: int) -> list[int]:
    """How often each of so many numbers is there."""
    return cast(list[int], np.bincount(numbers, minlength=size).tolist())


def row_pieces(data: RatingData, model: AutoRec) -> Iterator[tuple[slice, Tensor]]:
    """Items, and their rows of ratings that were learned.   -> (slice, (b, U))"""
    for rows in pieces(len(data.learned.items), len(data.learned.users)):
        given, _ = data.rows(np.arange(rows.start, rows.stop))
        yield rows, torch.from_numpy(given).to(model.encoder.weight.device)


def _joined(parts: list[Places]) -> Places:
    return Places(*(torch.cat([getattr(part, name) for part in parts]) for name in ("before", "level", "others")))
