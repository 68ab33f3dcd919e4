"""Flow on scikit-image's stereo pair at a quarter of its size, beside scikit-image and OpenCV; points beside OpenCV.

    python benchmarks/flow.py                                        # CPU, with one thread and with all
    python benchmarks/flow.py --save-pair pair.npz                   # for a machine without scikit-image
    python benchmarks/flow.py --pair pair.npz --device cuda --batch 16

Error is the mean endpoint error in pixels, over the pixels whose disparity is known. The pair is grey, resized with
anti-aliasing to 125 x 185; the truth is every fourth pixel's disparity, a quarter as long. A batch is the pair many
times over, and ms are those of one pair. OpenCV takes bytes, one pair at a time; scikit-image takes fp32. All take
turns in one run, and numbers are the best of the rounds, because other work on a machine only adds. With one thread
they are seconds of this process, else of the clock.
Points: corners of a photograph that was moved by a known affine map. The file holds OpenCV's answers too.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.evaluate.flow import endpoint_error
from horosphere.ops.flow import horn_schunck, lucas_kanade, track

Array = np.ndarray
HEIGHT, WIDTH, SHRINK = 125, 185, 4
POINTS, WINDOW, LEVELS = 500, 15, 3
AFFINE = ((1.01, 0.02, -6.3), (-0.015, 0.99, 4.8), (0.0, 0.0, 1.0))  # of a point (x, y, 1)
ROUNDS = 7
FARNEBACK = {"pyr_scale": 0.5, "levels": 4, "winsize": 15, "iterations": 5, "poly_n": 5, "poly_sigma": 1.2, "flags": 0}


@dataclass(frozen=True)
class Scenes:
    """What is measured on, as arrays of one file."""

    first: Array  # (H, W) fp32
    second: Array
    truth: Array  # (2, H, W), NaN where it is not known
    photograph: Array  # (H, W) bytes
    moved: Array
    points: Array  # (N, 2)
    moved_points: Array  # the truth
    opencv_points: Array  # NaN where OpenCV lost a point, or is absent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=int, default=1, help="pairs at once, for ours")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pair", type=Path, help="read the pair from this file")
    parser.add_argument("--save-pair", type=Path, help="write the pair to this file, and end")
    args = parser.parse_args()
    scenes = read(args.pair) if args.pair else made()
    if args.save_pair:
        np.savez_compressed(args.save_pair, **asdict(scenes))
        return
    default = torch.get_num_threads()
    threads = (1,) if args.device == "cuda" or default == 1 else (1, default)
    print_flow(scenes, args.device, args.batch, threads, args.rounds)
    print_points(scenes, args.device, threads, args.rounds)


# -- the scenes -------------------------------------------------------------------------------------------------------


def read(path: Path) -> Scenes:
    try:
        with np.load(path) as file:
            return Scenes(**{name: file[name] for name in file.files})
    except (OSError, TypeError, ValueError) as error:
        raise SystemExit(f"{path}: this is no file of --save-pair ({error})") from None


def made() -> Scenes:
    from skimage import color, data, feature, transform

    left, right, disparity = data.stereo_motorcycle()
    pair = [transform.resize(color.rgb2gray(picture), (HEIGHT, WIDTH), anti_aliasing=True) for picture in (left, right)]
    across = disparity[: SHRINK * HEIGHT : SHRINK, : SHRINK * WIDTH : SHRINK] / SHRINK
    known = np.isfinite(across)
    truth = np.where(known, np.stack([-across, np.zeros_like(across)]), np.nan)

    photograph, affine = data.camera(), np.array(AFFINE)
    moved = transform.warp(photograph, np.linalg.inv(affine), order=3, preserve_range=True).round().astype(np.uint8)
    corners = feature.corner_peaks(
        feature.corner_shi_tomasi(photograph / 255),
        min_distance=4,
        threshold_rel=1e-3,
        num_peaks=POINTS,
        exclude_border=40,
    )[:, ::-1].astype(np.float32)  # rows and columns become x and y
    there = (corners @ affine[:2, :2].T + affine[:2, 2]).astype(np.float32)
    theirs = opencv_track(photograph, moved, corners)
    answers = np.full_like(corners, np.nan) if theirs is None else theirs()
    return Scenes(
        *(picture.astype(np.float32) for picture in pair),
        truth.astype(np.float32),
        photograph,
        moved,
        corners,
        there,
        answers,
    )


# -- entrants ---------------------------------------------------------------------------------------------------------


def ours(scenes: Scenes, device: str, batch: int) -> dict[str, Callable[[], Tensor]]:
    a, b = (
        torch.from_numpy(picture).to(device).expand(batch, 1, HEIGHT, WIDTH).contiguous()
        for picture in (scenes.first, scenes.second)
    )
    return {
        "no motion": lambda: torch.zeros(batch, 2, HEIGHT, WIDTH, device=device),
        "Lucas-Kanade, one scale": lambda: lucas_kanade(a, b, levels=1),
        "Horn-Schunck, one scale": lambda: horn_schunck(a, b, levels=1),
        "Lucas-Kanade": lambda: lucas_kanade(a, b),
        "Horn-Schunck": lambda: horn_schunck(a, b),
    }


def peers(scenes: Scenes) -> dict[str, Callable[[], Array]]:
    """Those that are installed here.   -> (2, H, W)"""
    found: dict[str, Callable[[], Array]] = {}
    a, b = scenes.first, scenes.second
    try:
        from skimage.registration import optical_flow_ilk, optical_flow_tvl1

        found["scikit-image TV-L1"] = lambda: optical_flow_tvl1(a, b)[::-1]  # rows before columns
        found["scikit-image iLK"] = lambda: optical_flow_ilk(a, b)[::-1]
    except ImportError:
        pass
    try:
        import cv2

        bytes_a, bytes_b = ((255 * picture).round().astype(np.uint8) for picture in (a, b))
        dis = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        found["OpenCV Farneback"] = lambda: np.moveaxis(
            cv2.calcOpticalFlowFarneback(bytes_a, bytes_b, None, **FARNEBACK), -1, 0
        )
        found["OpenCV DIS"] = lambda: np.moveaxis(dis.calc(bytes_a, bytes_b, None), -1, 0)
    except ImportError:
        pass
    return found


def opencv_track(first: Array, second: Array, points: Array) -> Callable[[], Array] | None:
    """Where OpenCV finds the points, NaN where it does not; None where it is absent."""
    try:
        import cv2
    except ImportError:
        return None

    def once() -> Array:
        moved, status, _ = cv2.calcOpticalFlowPyrLK(
            first, second, points, None, winSize=(WINDOW, WINDOW), maxLevel=LEVELS - 1
        )
        return np.where(status == 1, moved, np.nan)

    return once


# -- tables -----------------------------------------------------------------------------------------------------------


def print_flow(scenes: Scenes, device: str, batch: int, threads: tuple[int, ...], rounds: int) -> None:
    truth = torch.from_numpy(scenes.truth)[None]
    mine, others = ours(scenes, device, batch), peers(scenes)
    runs: dict[str, Callable[[], object]] = {**mine, **others}
    errors = {name: endpoint_error(run()[:1].cpu(), truth) for name, run in mine.items()}
    errors |= {name: endpoint_error(torch.from_numpy(run().copy())[None], truth) for name, run in others.items()}
    taken = {count: best(runs, device, count, rounds) for count in threads}
    heads = "".join(f"{heading(device, count):>20}" for count in threads)
    print(f"{f'flow, {batch} at once, {device}':28}{'error, px':>10}{heads}")
    for name, error in errors.items():
        pairs = batch if name in mine else 1
        times = "".join(f"{1e3 * taken[count][name] / pairs:20.2f}" for count in threads)
        print(f"{name:28}{float(error):10.3f}{times}")


def print_points(scenes: Scenes, device: str, threads: tuple[int, ...], rounds: int) -> None:
    a, b = (torch.from_numpy(z)[None, None].to(device).float() / 255 for z in (scenes.photograph, scenes.moved))
    points = torch.from_numpy(scenes.points)[None].to(device)
    runs: dict[str, Callable[[], object]] = {"ours": lambda: track(a, b, points, WINDOW, LEVELS)}
    theirs = opencv_track(scenes.photograph, scenes.moved, scenes.points)
    if theirs is not None:
        runs["OpenCV"] = theirs
    moved, found = (z[0].cpu().numpy() for z in track(a, b, points, WINDOW, LEVELS))
    by_opencv = np.isfinite(scenes.opencv_points).all(1)
    both = found & by_opencv
    print(f"\n{len(moved)} points on {device}: found {found.sum()}, and by OpenCV {by_opencv.sum()}")
    for name, one, other in (
        ("ours to OpenCV's", moved, scenes.opencv_points),
        ("ours to the truth", moved, scenes.moved_points),
        ("OpenCV's to the truth", scenes.opencv_points, scenes.moved_points),
    ):
        apart = np.linalg.norm(one - other, axis=1)[both]
        if len(apart):
            middle, most = np.median(apart), np.quantile(apart, 0.95)
            print(f"{name:28}median {middle:.4f} px, 95 % below {most:.4f}, mean {apart.mean():.4f}")
    for count in threads:
        taken = best(runs, device, count, rounds)
        times = ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in taken.items())
        ratio = f": {taken['ours'] / taken['OpenCV']:.1f} times" if "OpenCV" in taken else ""
        print(f"{heading(device, count):28}{times}{ratio}")


def heading(device: str, threads: int) -> str:
    return "ms" if device == "cuda" else f"ms, {threads} thread{'s' if threads > 1 else ''}"


def best(runs: dict[str, Callable[[], object]], device: str, threads: int, rounds: int) -> dict[str, float]:
    """Least seconds of each, in rounds in which they take turns."""
    torch.set_num_threads(threads)
    try:
        import cv2

        cv2.setNumThreads(threads)
    except ImportError:
        pass
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = now(device, threads)
            run()
            taken[name].append(now(device, threads) - start)
    return {name: min(seconds) for name, seconds in taken.items()}


def now(device: str, threads: int) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    elif threads == 1:
        return time.process_time()
    return time.perf_counter()


if __name__ == "__main__":
    try:
        with torch.no_grad():
            main()
    except UserError as error:
        raise SystemExit(str(error)) from None
