"""HOG of 64 pictures and Hough lines of 64 edge maps: ours beside scikit-image, in one run.

    python benchmarks/features.py                  # one thread, medians of rounds that take turns
    python benchmarks/features.py --device cuda    # ours on the GPU beside ours on the CPU, and scikit-image if there

Pictures are pieces of a photograph of scikit-image; without it, smoothed noise. The answers are compared as well.
"""

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.ops.features import hog
from horosphere.ops.hough import hough_lines
from horosphere.tables import table_lines

PICTURES, SIDE, ANGLES = 64, 256, 180
SKIMAGE = find_spec("skimage") is not None


def pictures() -> Tensor:
    """(64, 1, 256, 256), fp32"""
    generator = torch.Generator().manual_seed(0)
    if not SKIMAGE:
        coarse = torch.rand(PICTURES, 1, SIDE // 8, SIDE // 8, generator=generator)
        return F.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic").clamp(0, 1)
    from skimage.data import camera

    photograph = torch.tensor(camera() / 255, dtype=torch.float32)
    corners = torch.randint(len(photograph) - SIDE, (PICTURES, 2), generator=generator).tolist()
    return torch.stack([photograph[y : y + SIDE, x : x + SIDE] for y, x in corners])[:, None]


def edges_of(x: Tensor) -> Tensor:
    """The twentieth of all pixels with the steepest slopes: as many as Canny leaves of a photograph."""
    steep = F.pad(x.diff(dim=-1), (0, 1)).abs() + F.pad(x.diff(dim=-2), (0, 0, 0, 1)).abs()
    return (steep > steep.flatten(1).quantile(0.95, dim=1)[:, None, None, None]).float()


def ours(device: str, x: Tensor, edges: Tensor) -> dict[str, Callable[[], Tensor]]:
    x, edges = x.to(device), edges.to(device)

    def finished(answer: Tensor) -> Tensor:
        if device == "cuda":
            torch.cuda.synchronize()
        return answer

    return {"HOG": lambda: finished(hog(x)), "Hough lines": lambda: finished(hough_lines(edges, ANGLES)[0])}


def theirs(x: Tensor, edges: Tensor) -> dict[str, Callable[[], list[np.ndarray]]]:
    from skimage.feature import hog as one_hog
    from skimage.transform import hough_line

    planes, maps = x[:, 0].numpy(), edges[:, 0].numpy().astype(bool)
    theta = np.linspace(-np.pi / 2, np.pi / 2, ANGLES, endpoint=False)

    return {
        "HOG": lambda: [one_hog(plane, cells_per_block=(2, 2), block_norm="L2") for plane in planes],
        "Hough lines": lambda: [hough_line(edge, theta)[0] for edge in maps],
    }


def in_fp64(answer: Tensor | list[np.ndarray]) -> Tensor:
    return (answer if isinstance(answer, Tensor) else torch.tensor(np.stack(answer).astype(float))).double().cpu()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    x = pictures()
    edges = edges_of(x)
    entrants: dict[str, dict[str, Callable[[], Tensor | list[np.ndarray]]]] = {}
    entrants["ours, CPU"] = {**ours("cpu", x, edges)}
    if SKIMAGE:
        entrants["scikit-image"] = {**theirs(x, edges)}
    if given.device == "cuda":
        entrants["ours, GPU"] = {**ours("cuda", x, edges)}
    rows = []
    for what in ("HOG", "Hough lines"):
        answers = {name: in_fp64(calls[what]()) for name, calls in entrants.items()}  # and a warm start
        seconds: dict[str, list[float]] = {name: [] for name in entrants}
        for _ in range(given.rounds):
            for name, calls in entrants.items():
                start = perf_counter()
                calls[what]()
                seconds[name].append(perf_counter() - start)
        base = median(seconds["ours, CPU"])
        for name, times in seconds.items():
            apart = (answers[name] - answers["ours, CPU"]).abs().max().item()
            rows.append([what, name, f"{1000 * median(times):.1f}", f"{median(times) / base:.3g}", f"{apart:.1e}"])
    print(f"{PICTURES} pictures of {SIDE} x {SIDE}, {int(edges.sum()) // PICTURES} edge pixels each, {ANGLES} angles")
    print(*table_lines(["what", "who", "ms", "time / ours, CPU", "largest difference"], rows), sep="\n")


if __name__ == "__main__":
    main()
