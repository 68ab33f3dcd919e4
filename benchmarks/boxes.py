"""Anchors and their objects: ours beside a loop over pictures and objects, and beside torchvision's Matcher.

    python benchmarks/boxes.py                       # TinySSD's 5,444 anchors, on one core
    python benchmarks/boxes.py --device cuda         # on a GPU, and compiled

The loop is written as textbooks have it: one picture after another, one object after another, a value fetched for each.
Matcher takes one picture at a time, and lets objects share an anchor. Entrants take turns; medians of the rounds.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torchvision.models.detection._utils import Matcher
from torchvision.ops import box_iou

from horosphere.ops.boxes import anchors, assign
from horosphere.tables import table_lines

MAPS = {32: (0.2, 0.272), 16: (0.37, 0.447), 8: (0.54, 0.619), 4: (0.71, 0.79), 1: (0.88, 0.961)}  # TinySSD's
RATIOS = (1, 2, 0.5)


def vectorised(device: str) -> Tensor:
    return torch.cat([anchors(side, side, sizes, RATIOS, device) for side, sizes in MAPS.items()])


def looped(device: str) -> Tensor:
    """Anchor by anchor."""
    boxes = []
    for side, sizes in MAPS.items():
        shapes = [(size, RATIOS[0]) for size in sizes] + [(sizes[0], ratio) for ratio in RATIOS[1:]]
        for i in range(side):
            for j in range(side):
                for size, ratio in shapes:
                    x, y, w, h = (j + 0.5) / side, (i + 0.5) / side, size * ratio**0.5, size / ratio**0.5
                    boxes.append((x - w / 2, y - h / 2, x + w / 2, y + h / 2))
    return torch.tensor(boxes, device=device)


def by_loops(given: Tensor, boxes: Tensor, counts: Tensor) -> Tensor:
    answers = []
    for truth, count in zip(boxes, counts.tolist(), strict=True):
        answer = torch.full((len(given),), -1, device=given.device)
        if count:
            overlaps = box_iou(given, truth[:count])
            most, which = overlaps.max(1)
            near = most >= 0.5
            answer[near] = which[near]
            for _ in range(count):
                anchor, number = divmod(int(overlaps.argmax()), count)
                answer[anchor] = number
                overlaps[anchor], overlaps[:, number] = -1, -1
        answers.append(answer)
    return torch.stack(answers)


def by_matcher(given: Tensor, boxes: Tensor, counts: Tensor) -> Tensor:
    matcher = Matcher(0.5, 0.5, allow_low_quality_matches=True)
    nothing = torch.full((len(given),), -1, device=given.device)
    return torch.stack(
        [
            matcher(box_iou(truth[:count], given)) if count else nothing
            for truth, count in zip(boxes, counts.tolist(), strict=True)
        ]
    )


def medians(entrants: dict[str, Callable[[], Tensor]], rounds: int, device: str) -> dict[str, float]:
    """Milliseconds of each; all take a turn in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in entrants}
    for work in entrants.values():
        work()
    for _ in range(rounds):
        for name, work in entrants.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - start)
    return {name: 1000 * median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=9)
    device, rounds = parser.parse_args().device, parser.parse_args().rounds
    rows = [
        ["anchors", *_row(medians({"ours": lambda: vectorised(device), "a loop": lambda: looped(device)}, 3, device))]
    ]
    given = vectorised(device)
    for batch, objects in ((1, 4), (32, 4), (32, 16)):
        corners = torch.rand(batch, objects, 2, 2, generator=torch.Generator().manual_seed(0)).sort(2).values
        boxes = corners.flatten(2).to(device)
        counts = (
            (torch.arange(batch) % (objects + 1)).to(device) if batch > 1 else torch.tensor([objects], device=device)
        )
        assert torch.equal(assign(given, boxes, counts), by_loops(given, boxes, counts))
        entrants = {"ours": assign, "a loop": by_loops, "Matcher": by_matcher}
        if device == "cuda":
            entrants["ours, compiled"] = torch.compile(assign, fullgraph=True, mode="reduce-overhead")
        timed = medians({name: partial(work, given, boxes, counts) for name, work in entrants.items()}, rounds, device)
        rows.append([f"{batch} pictures, up to {objects} objects", *_row(timed)])
    heading = ["", "ours ms", "a loop", "Matcher", "ours, compiled"]
    print("\n".join(table_lines(heading, rows)))
    print("The other columns are times ours.")


def _row(timed: dict[str, float]) -> list[str]:
    others = [f"{timed[name] / timed['ours']:.2f}" if name in timed else "–" for name in ("a loop", "Matcher")]
    compiled = f"{timed['ours, compiled'] / timed['ours']:.2f}" if "ours, compiled" in timed else "–"
    return [f"{timed['ours']:.2f}", *others, compiled]


if __name__ == "__main__":
    main()
