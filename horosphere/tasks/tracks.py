"""Following a box through frames: a template of one frame is looked for in another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere.data.order import evenly
from horosphere.data.tracks import Track, TrackData, middle, open_tracks
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.tracks import centre_scores, mean_overlap
from horosphere.extras import require
from horosphere.files import digest
from horosphere.models.siamese import (
    Look,
    Matcher,
    PixelMatcher,
    SiamFC,
    SiamFCConfig,
    balanced_loss,
    look_at,
    peak,
    search_around,
    signs,
    track_box,
)
from horosphere.models.weights import begin_with
from horosphere.runs import Run
from horosphere.settings import Count, Positive
from horosphere.train.config import EngineConfig
from horosphere.train.task import Task

SPREAD = 0.8  # of the room in a search over which what is looked for lies anywhere
PAIRS, SEQUENCES = 400, 40  # that an evaluation looks at, at most
AT_ONCE = 50  # pairs of an evaluation in one forward

Follow = Callable[[Iterable[np.ndarray], np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class TrainedTracker:
    """A network on the CPU and in eval mode."""

    network: SiamFC

    def track(self, frames: Iterable[np.ndarray], box: Sequence[float] | np.ndarray) -> np.ndarray:
        """Where the thing in a box of the first frame is in all of them: see `track_box`.

        (T, H, W, 3) uint8, (4,) -> (T, 4)
        """
        return track_box(self.network, frames, np.asarray(box))


class Pair(NamedTuple):
    """Two frames of a sequence."""

    track: Track
    first: int
    second: int

    @property
    def moved(self) -> np.ndarray:
        """From the middle of the first box to that of the second.   -> (2,)"""
        return middle(self.track.boxes[self.second]) - middle(self.track.boxes[self.first])


@dataclass(kw_only=True)
class Tracks(Task[TrackData]):
    """A row is a frame, whose box is the template, and another frame near it, in which it is looked for."""

    kind = "tracks"
    unit = "pairs"
    one_shape = True
    alone = "the network is small; one process trains it"
    metrics = (
        Metric("overlap", "mean IoU of sequences", 4, "high", "judged"),
        Metric("distance", "pixels from the truth", 2, "low"),
        Metric("near", "nearer than 5 pixels", 4, "high"),
    )

    data: str  # a folder of sequences as OTB has them; builtin:moving, builtin:turning
    valid: str | None = None  # a folder of its own to judge by; none: every tenth sequence
    reach: Count = 15  # frames between the two of a pair, at most
    radius: Positive = 4.0  # pixels of a crop around the truth that count as right

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        require("torchvision")  # the evaluation needs it: better to know now
        if self.radius < SiamFC.stride:
            raise UserError(f"radius={self.radius:g}: answers lie {SiamFC.stride} pixels apart; give at least as much")

    def open_data(self) -> TrackData:
        data = open_tracks(self.data, self.valid)
        for track in (*data.train, *data.valid):
            if len(track) < 2:
                raise UserError(f"{track.name}: a sequence of one frame, in which nothing moves; remove it")
        return data

    def rows(self, data: TrackData) -> int:
        return sum(map(len, data.train))

    def facts(self, data: TrackData) -> dict[str, Any]:
        sizes = {"train": len(data.train), "valid": len(data.valid)}
        contents = [part for track in (*data.train, *data.valid) for part in (track.name, track.boxes.tobytes())]
        return {"sequences": sizes, "frames": self.rows(data), "digest": digest(*contents)}

    def build(self, data: TrackData) -> SiamFC:
        model = SiamFC(self.configuration())
        if self.start is not None:
            begin_with(model, Run.open(self.start, self.kind).load().network.state_dict(), self.start)
        return model

    def ready(self, data: TrackData) -> None:
        super().ready(data)
        self.threads = ThreadPoolExecutor(thread_name_prefix="frames")
        self.frames = _frames(data.train)
        self.judged = self._pairs_to_judge(data.valid)

    def _pairs_to_judge(self, tracks: list[Track]) -> list[Pair]:
        """The same ones for every seed and every run: those whose search, around the first place, holds the second."""
        config: SiamFCConfig = self.configuration()
        random, frames, pairs = np.random.default_rng(0), _frames(tracks), []
        for number, i in frames[evenly(np.arange(len(frames)), PAIRS)]:
            track = tracks[number]
            pair = Pair(track, i, _partner(i, len(track), self.reach, random.random()))
            template, search = config.sides(track.boxes[i])
            if abs(pair.moved).max() <= (search - template) / 2:
                pairs.append(pair)
        if not pairs:
            raise UserError(f"search={config.search}: every box to judge by moves farther; give more, or less reach")
        return pairs

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """template (B, 3, t, t) uint8, search (B, 3, s, s) uint8, signs (B, n, n)"""
        config: SiamFCConfig = self.configuration()
        draws = np.random.default_rng((self.engine.seed, step)).random((self.engine.batch, 3))[rows.start : rows.stop]
        chosen = self.frames[self.drawn(step, rows, len(self.frames))]
        room = SPREAD * (config.search - config.template) / 2
        shifts = (room * (2 * draws[:, 1:] - 1)).astype(np.float32)

        def cut(row: int) -> tuple[Tensor, Tensor]:
            number, i = chosen[row]
            track = self.opened.train[number]
            j = _partner(i, len(track), self.reach, draws[row, 0])
            look = look_at(track.read(i), track.boxes[i], config)
            centre = middle(track.boxes[j]) - _scale(look, config) * shifts[row]
            return look.template, search_around(track.read(j), centre, look, config)

        template, search = map(torch.stack, zip(*self.threads.map(cut, range(len(rows))), strict=True))
        return {"template": template, "search": search, "signs": signs(torch.from_numpy(shifts), config, self.radius)}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return balanced_loss(model(batch["template"], batch["search"]).float(), batch["signs"]), {}

    # -- scores -----------------------------------------------------------------------------------------------------

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """Of pairs whose search is around the place in the first frame; at the end of whole sequences too."""
        matcher = cast(SiamFC, model)
        scores = self._pair_scores(matcher)
        return scores | self._sequence_scores(lambda frames, box: track_box(matcher, frames, box)) if last else scores

    def baselines(self) -> dict[str, dict[str, float]]:
        """What is had without learning: the place where it was, and correlation of the pixels in the box."""
        moved = np.stack([pair.moved for pair in self.judged])
        stays = self._sequence_scores(lambda frames, box: np.stack([box for _ in frames]))
        pixels = PixelMatcher(self.configuration())
        follows = self._sequence_scores(lambda frames, box: track_box(pixels, frames, box))
        return {
            "stays where it was": centre_scores(np.zeros_like(moved), moved) | stays,
            "correlation of pixels": self._pair_scores(pixels) | follows,
        }

    @torch.no_grad()
    def _pair_scores(self, matcher: Matcher) -> dict[str, float]:
        config, device, found = matcher.config, self.world.device, []

        def cut(pair: Pair) -> tuple[Look, Tensor]:
            look = look_at(pair.track.read(pair.first), pair.track.boxes[pair.first], config)
            centre = middle(pair.track.boxes[pair.first])
            return look, search_around(pair.track.read(pair.second), centre, look, config)

        for first in range(0, len(self.judged), AT_ONCE):
            looks, searches = zip(*self.threads.map(cut, self.judged[first : first + AT_ONCE]), strict=True)
            templates = torch.stack([look.template for look in looks])
            answers = matcher(templates.to(device), torch.stack(searches).to(device))
            scales = np.array([[_scale(look, config)] for look in looks])
            found.append(scales * peak(answers.float(), matcher.stride).cpu().numpy())
        return centre_scores(np.concatenate(found), np.stack([pair.moved for pair in self.judged]))

    def _sequence_scores(self, follow: Follow) -> dict[str, float]:
        """The first frame, whose box is given, does not count."""
        tracks = [self.opened.valid[i] for i in evenly(np.arange(len(self.opened.valid)), SEQUENCES)]
        overlaps = [
            mean_overlap(follow(map(track.read, range(len(track))), track.boxes[0])[1:], track.boxes[1:])
            for track in tracks
        ]
        return {"overlap": float(np.mean(overlaps))}

    # -- a finished run ---------------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> SiamFC:
        return SiamFC(self.configuration())

    def trained(self, network: nn.Module, run: Run) -> TrainedTracker:
        return TrainedTracker(cast(SiamFC, network))

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        count = facts["sequences"]
        sizes = f"{count['train']:,} to learn, of {facts['frames']:,} frames; {count['valid']:,} to judge"
        return [*super().about(facts), ["sequences", sizes]]


def _frames(tracks: list[Track]) -> np.ndarray:
    """Number of the track and number of the frame in it, of every frame.   -> (N, 2)"""
    parts = [np.stack([np.full(len(track), number), np.arange(len(track))], 1) for number, track in enumerate(tracks)]
    return np.concatenate(parts)


def _partner(frame: int, frames: int, reach: int, draw: float) -> int:
    """Another frame of the same track, at most `reach` away. draw: from 0 to 1."""
    near = [k for k in range(max(0, frame - reach), min(frames, frame + reach + 1)) if k != frame]
    return near[int(draw * len(near))]


def _scale(look: Look, config: SiamFCConfig) -> float:
    """Pixels of the frame for a pixel of a crop."""
    return look.sides[0] / config.template
