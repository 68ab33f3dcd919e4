"""Power laws of loss against width: of the toy model, and of language models, with an offset a family and dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.foreign import Unreadable, printable, read_table, shown

SURE = 0.95  # of every interval here
FEW_SEEDS = 5  # below, a bootstrap over seeds is too narrow to trust
FEW_SIZES = 5  # below, α, A and an offset can be traded for each other: predictions are guesses
FREE = "1/m^α"  # the law that is fitted; beside it: 1/m, and N for m
EXPONENTS = (0.01, 8.0)  # where α is searched; near the ends the law is a logarithm or a step, and α means nothing


# -- the toy model: L = scale/m^α -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PowerLaw:
    """L = scale/m^exponent."""

    exponent: float  # α_m
    scale: float
    low: float  # of the exponent; NaN where nothing can be said
    high: float
    how: str  # where the interval comes from
    r_squared: float


def power_law(
    widths: Sequence[float] | np.ndarray, losses: Sequence[float] | np.ndarray, bootstrap: int = 2000, seed: int = 0
) -> PowerLaw:
    """Least squares on logarithms.   (W,), (W,) or (seeds, W) -> PowerLaw

    The interval is a bootstrap over seeds. It tells how chance moves the slope over these widths, not whether a power
    law is the right curve. With one seed it is the interval of the regression, which takes every departure from the
    line for chance.

    >>> fit = power_law([10, 20, 40], [[0.5, 0.25, 0.125], [0.6, 0.3, 0.15]])
    >>> round(fit.exponent, 3), round(fit.r_squared, 2)
    (1.0, 0.97)
    """
    m, loss = np.asarray(widths, np.float64), np.atleast_2d(np.asarray(losses, np.float64))
    if m.ndim != 1 or loss.ndim != 2 or loss.shape[1] != len(m):
        raise UserError(
            f"losses of shape {np.shape(losses)} for {np.size(m)} widths: give (widths,) or (seeds, widths)"
        )
    if len(np.unique(m)) < 2:
        raise UserError("a slope needs losses at two different widths or more")
    for name, values in (("widths", m), ("losses", loss)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise UserError(f"{name} must be positive numbers: a power law lives on logarithms")
    x, y = np.log(m) - np.log(m).mean(), np.log(loss)
    slopes = y @ x / (x @ x)  # of each seed; the slope of all points is their mean
    slope, middle = slopes.mean(), y.mean()
    rest = ((y - middle - slope * x) ** 2).sum()
    total = ((y - middle) ** 2).sum()
    if len(loss) > 1:
        from scipy.stats import norm, t

        draws = np.random.default_rng(seed).choice(slopes, (bootstrap, len(slopes))).mean(1)
        # few values drawn again spread less than new ones: so we take tails farther out, as Student's t has them
        tail = norm.cdf(math.sqrt(len(slopes) / (len(slopes) - 1)) * t.ppf(_tails()[0], len(slopes) - 1))
        (low, high), how = np.quantile(-draws, [tail, 1 - tail]), f"bootstrap over {len(loss)} seeds"
        how += ": too few, the interval is too narrow" if len(loss) < FEW_SEEDS else ""
    elif len(m) > 2:
        from scipy.stats import t

        half = t.ppf(_tails()[1], len(m) - 2) * math.sqrt(rest / (len(m) - 2) / (x @ x))
        low, high, how = -slope - half, -slope + half, f"regression over {len(m)} widths of one seed"
    else:
        low, high, how = math.nan, math.nan, "no interval: one seed at two widths"
    scale = math.exp(middle - slope * np.log(m).mean())
    return PowerLaw(
        float(-slope), scale, float(low), float(high), how, float(1 - rest / total) if total > 0 else math.nan
    )


def _tails() -> tuple[float, float]:
    return (1 - SURE) / 2, (1 + SURE) / 2


# -- losses of language models ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Losses:
    """A loss in nats a row, of one model on one dataset. All fields have one entry a row.

    >>> family, dataset, width = np.array(["opt"] * 3), np.array(["c4"] * 3), np.array([64.0, 128.0, 256.0])
    >>> losses = Losses(family, dataset, width, loss=np.array([3.0, 2.5, 2.2]), model=width.astype(str))
    >>> len(losses), losses.groups()[0]
    (3, [('opt', 'c4')])
    """

    family: np.ndarray
    dataset: np.ndarray
    width: np.ndarray  # m
    loss: np.ndarray
    model: np.ndarray  # resampled and left out as a whole: losses of one model go up and down together
    parameters: np.ndarray | None = None  # N

    def __len__(self) -> int:
        return len(self.loss)

    def rows(self, chosen: np.ndarray) -> Losses:
        """Some of the rows, by mask or index."""
        parameters = None if self.parameters is None else self.parameters[chosen]
        return Losses(
            self.family[chosen],
            self.dataset[chosen],
            self.width[chosen],
            self.loss[chosen],
            self.model[chosen],
            parameters,
        )

    def groups(self) -> tuple[list[tuple[str, str]], np.ndarray]:
        """The (family, dataset) pairs, and which of them each row belongs to."""
        pairs = list(zip(self.family.tolist(), self.dataset.tolist(), strict=True))
        number = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        return list(number), np.array([number[pair] for pair in pairs])


def read_losses(path: str | Path) -> Losses:
    """A CSV with the columns family, dataset, m (width) and loss (nats), and perhaps `model` and `N` (parameters).

    Without `model`, rows of the same family and width are the same model.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "losses.csv").write_text("family,dataset,m,loss\\nopt,c4,64,3.1\\nopt,c4,128,2.9\\n")
    ...     read_losses(f"{folder}/losses.csv").model.tolist()
    ['opt 64', 'opt 128']
    """
    path = Path(path)
    try:
        lines = read_table(path, skipinitialspace=True)
    except Unreadable as error:
        raise UserError(f"{path}: {error}. Check the path, or give a CSV file in UTF-8.") from None
    head = [name.strip() for name in lines[0][1]] if lines else []
    for column in ("family", "dataset", "m", "loss"):
        if head.count(column) != 1:
            raise UserError(
                f"{path}: {head.count(column) or 'no'} column {column} (it has {one_line(', '.join(head) or 'none')}). "
                "Add it: family,dataset,m,loss."
            )
    rows = [(dict(zip(head, [printable(cell) for cell in cells], strict=False)), line) for line, cells in lines[1:]]
    if long := [line for line, cells in lines[1:] if len(cells) > len(head)]:
        raise UserError(f"{path} line {long[0]}: more cells than columns. Put what has a comma in quotes.")
    if not rows:
        raise UserError(f"{path}: no rows below the header. Give one a loss.")
    for row, line in rows:
        for column in ("family", "dataset", *["model"] * ("model" in head)):
            if not row.get(column):
                raise UserError(f"{path} line {line}: column {column} is empty. Fill it in, or remove the line.")
    numbers = {
        c: np.array([_positive(path, line, c, row.get(c, "")) for row, line in rows])
        for c in ("m", "loss", "N")
        if c in head
    }
    texts = {c: np.array([row[c] for row, _ in rows]) for c in ("family", "dataset", "model") if c in head}
    named = [f"{family} {m:g}" for family, m in zip(texts["family"], numbers["m"], strict=True)]
    model = texts.get("model", np.array(named))
    losses = Losses(texts["family"], texts["dataset"], numbers["m"], numbers["loss"], model, numbers.get("N"))
    if len(np.unique(losses.width)) == 1:
        raise UserError(
            f"{path}: column m is {losses.width[0]:g} in every row. A law of width needs three widths or more."
        )
    return losses


def _positive(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{path} line {line}: column {column} is {shown(text)}. Write a positive number.")
    return value


# -- language models: L = A/m^α + B of the family and dataset ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WidthFit:
    """L = scale/m^exponent + offset of (family, dataset), by least squares. An interval is NaN if nothing can be said.

    bootstrap: the interval of the exponent to quote, over models within their families.
    profile: exponents whose fit is no worse than chance would make it (F test, offsets free), were all losses
    independent. They are not: losses of one model go together.
    """

    exponent: float
    scale: float
    offsets: dict[tuple[str, str], float]
    mse: float
    profile: tuple[float, float]
    bootstrap: tuple[float, float]
    left_out: dict[str, float]  # law -> root mean square error in nats on models left out; NaN where none can be
    draws: np.ndarray  # (resamples, 2 + offsets): exponent, scale and offsets of each
    errors: np.ndarray  # of this law on models it has not seen: (rows that can be left out,)
    table: Losses

    @property
    def sizes(self) -> int:
        """Different widths."""
        return len(np.unique(self.table.width))

    def rows(self) -> list[list[str]]:
        """For a table."""
        models = len(set(self.table.model.tolist()))
        offsets = f"an offset for each of {len(self.offsets)} (family, dataset)"
        errors = {law: error for law, error in self.left_out.items() if not math.isnan(error)}
        return [
            ["losses", f"{len(self.table)} of {models} models at {self.sizes} widths"],
            ["law", f"L = {self.scale:.3g}/m^{self.exponent:.3f} + {offsets}"],
            ["α", f"{self.exponent:.3f}"],
            ["  profile, 95 %", interval(self.profile)],
            ["  bootstrap over models, 95 %", interval(self.bootstrap)],
            ["mean square error", f"{self.mse:.2e}"],
            *([f"error on a model left out, {law}", f"{error:.3f} nats"] for law, error in errors.items()),
        ]


def interval(ends: tuple[float, float]) -> str:
    """For a table.

    >>> interval((0.5, 1.25)), interval((math.nan, math.nan))
    ('0.500 … 1.250', 'none: too few sizes')
    """
    return "none: too few sizes" if math.isnan(ends[0]) else f"{ends[0]:.3f} … {ends[1]:.3f}"


def fit_widths(table: Losses, bootstrap: int = 1000, seed: int = 0) -> WidthFit:
    """The law by variable projection: given α, A and the offsets are linear, so only α is searched.

    >>> width, family, dataset = np.array([64.0, 128, 256, 512, 1024]), np.array(["opt"] * 5), np.array(["c4"] * 5)
    >>> fit = fit_widths(Losses(family, dataset, width, 8 / width**0.5 + 2, model=width.astype(str)), bootstrap=20)
    >>> round(fit.exponent, 2), round(fit.scale, 1), round(fit.offsets["opt", "c4"], 2)
    (0.5, 8.0, 2.0)
    """
    groups, group = table.groups()
    if (free := _contrasts(table.width, group)) < 2:
        what = "two widths say nothing about α" if free else "no family has losses at two widths on one dataset"
        raise UserError(f"{what}: give losses of a family on one dataset at three widths or more")
    law = _Law(table.width, table.loss, group, len(groups))
    alpha = law.best()
    scale, offsets = law.linear(alpha)
    if scale <= 0:
        raise UserError("the losses do not fall with width: there is no law of this form to fit")
    spare = len(table) - len(groups) - 2
    # with few sizes nearly every draw that can be fitted is the table itself, and would look like certainty
    few = len(np.unique(table.width)) < FEW_SIZES
    draws = _resampled(table, len(groups), 0 if few else bootstrap, seed)
    low, high = np.quantile(draws[:, 0], _tails()) if len(draws) else (math.nan, math.nan)
    errors = _left_out(table)
    return WidthFit(
        exponent=alpha,
        scale=scale,
        offsets=dict(zip(groups, offsets.tolist(), strict=True)),
        mse=float(np.square(table.loss - law.predicted(alpha, scale, offsets)).mean()),
        profile=_profile(law, alpha, spare),
        bootstrap=(float(low), float(high)),
        left_out={
            name: float(np.sqrt(np.square(off).mean())) if len(off) else math.nan for name, off in errors.items()
        },
        draws=draws,
        errors=errors[FREE],
        table=table,
    )


@dataclass(frozen=True)
class Prediction:
    """The loss expected of a model, and its interval."""

    loss: float
    low: float | None  # None: nothing honest can be said
    high: float | None
    note: str  # how sure, in words


def predict(fit: WidthFit, width: float, family: str, dataset: str) -> Prediction:
    """The loss of a model of that width, with an interval for one new model.

    The interval takes every curve of the bootstrap with every error on a model left out. Residuals would be too small:
    in six kinds of data made by the law, intervals from them held 88 to 97 % of new models, and these 92 to 99 %.

    >>> width, family, dataset = np.array([64.0, 128, 256, 512, 1024]), np.array(["opt"] * 5), np.array(["c4"] * 5)
    >>> fit = fit_widths(Losses(family, dataset, width, 8 / width**0.5 + 2, model=width.astype(str)), bootstrap=20)
    >>> prediction = predict(fit, 4096, "opt", "c4")
    >>> round(prediction.loss, 3), prediction.note.partition(";")[0]
    (2.125, '95% interval for one new model, if the law holds')
    """
    groups = list(fit.offsets)
    if (family, dataset) not in fit.offsets:
        raise UserError(f"no losses of {family} on {dataset}: choose {', '.join(' on '.join(pair) for pair in groups)}")
    if not (math.isfinite(width) and width > 0):
        raise UserError(f"width {width:g}: give a positive number")
    loss = fit.scale * width**-fit.exponent + fit.offsets[family, dataset]
    seen = np.unique(fit.table.width[(fit.table.family == family) & (fit.table.dataset == dataset)])
    if fit.sizes < FEW_SIZES:
        note = f"a guess: {fit.sizes} sizes cannot tell the exponent from the offset, so there is no interval"
        return Prediction(loss, None, None, note)
    if not len(fit.errors):
        note = "a guess: no model can be left out to see how the law does without it, so there is no interval"
        return Prediction(loss, None, None, note)
    curves = fit.draws[:, 1] * width ** -fit.draws[:, 0] + fit.draws[:, 2 + groups.index((family, dataset))]
    low, high = np.nanquantile(curves[:, None] + fit.errors, _tails())
    note = f"{SURE:.0%} interval for one new model, if the law holds"
    if width > seen[-1] or width < seen[0]:
        times, end = (width / seen[-1], "widest") if width > seen[-1] else (seen[0] / width, "narrowest")
        note += f"; an extrapolation, {times:.2g} times beyond the {end} seen, which no data here can check"
    if len(seen) < FEW_SIZES:
        note += f"; the offset of {family} on {dataset} rests on {len(seen)} size{'s' * (len(seen) > 1)}"
    return Prediction(loss, float(low), float(high), note)


class _Law:
    """L = A·(x/x0)^-α + B_g with row weights. x0, the geometric mean, keeps A and B apart in size."""

    def __init__(
        self, x: np.ndarray, loss: np.ndarray, group: np.ndarray, groups: int, weight: np.ndarray | None = None
    ):
        self.log = np.log(x) - np.log(x).mean()
        self.middle = float(np.log(x).mean())
        self.loss, self.group = loss, group
        self.weight = np.ones(len(x)) if weight is None else weight
        self.member = np.eye(groups)[group] * self.weight[:, None]  # (rows, groups)
        self.share = self.member / np.maximum(self.member.sum(0), 1e-300)  # an empty group has mean 0, and no rows
        self.centred = loss - (loss @ self.share)[group]

    def _basis(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x/x0)^-α, and the same without the mean of its group.   (G,) -> (G, rows), (G, rows)"""
        u = np.exp(-alpha[:, None] * self.log)
        return u, u - (u @ self.share)[:, self.group]

    def rss(self, alpha: np.ndarray) -> np.ndarray:
        """What is left of Σ w·(L - law)² at the best A and offsets.   (G,) -> (G,)"""
        _, u = self._basis(alpha)
        scale = (u * self.weight) @ self.centred / np.maximum((u * u) @ self.weight, 1e-300)
        return ((self.centred - scale[:, None] * u) ** 2) @ self.weight

    def best(self) -> float:
        """α of the least rss: on a grid of all EXPONENTS, then on finer ones around the best."""
        low, high = EXPONENTS
        grid = np.geomspace(low, high, 81)
        for _ in range(6):
            k = int(self.rss(grid).argmin())
            low, high = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
            grid = np.linspace(low, high, 21)
        return float(grid[self.rss(grid).argmin()])

    def linear(self, alpha: float) -> tuple[float, np.ndarray]:
        """A of A/x^α, and the offsets (groups,); NaN for a group without weight."""
        u, v = self._basis(np.array([alpha]))
        scale = float((v[0] * self.weight) @ self.centred / ((v[0] * v[0]) @ self.weight))
        offsets = np.where(self.member.sum(0) > 0, (self.loss - scale * u[0]) @ self.share, math.nan)
        return scale * math.exp(alpha * self.middle), offsets

    def predicted(self, alpha: float, scale: float, offsets: np.ndarray) -> np.ndarray:
        return scale * np.exp(-alpha * (self.log + self.middle)) + offsets[self.group]


def _contrasts(width: np.ndarray, group: np.ndarray) -> int:
    """How many differences of loss tell about width, once each group's offset is free. A and α need two."""
    at = (width[:, None] == np.unique(width)).astype(float)
    centred = [at[group == g] - at[group == g].mean(0) for g in np.unique(group)]
    return int(np.linalg.matrix_rank(np.concatenate(centred)))


def _profile(law: _Law, alpha: float, spare: int) -> tuple[float, float]:
    """Where rss stays below its least times 1 + F/spare, on either side of α; NaN without rows to spare."""
    if spare < 1:
        return math.nan, math.nan
    from scipy.optimize import brentq
    from scipy.stats import f

    limit = law.rss(np.array([alpha]))[0] * (1 + f.ppf(SURE, 1, spare) / spare)

    def over(a: float) -> float:
        return float(law.rss(np.array([a]))[0] - limit)

    low, high = (
        brentq(over, *sorted((end, alpha)), xtol=1e-6) if over(end) > 0 > over(alpha) else end for end in EXPONENTS
    )
    return low, high


def _resampled(table: Losses, groups: int, times: int, seed: int) -> np.ndarray:
    """Fits to models drawn with repetition, as many of each family as it has.   -> (times, 2 + groups)

    The offset of a group that was not drawn is NaN.
    """
    _, group = table.groups()
    model = _models(table)
    families = [np.unique(model[table.family == family]) for family in np.unique(table.family)]
    random, draws = np.random.default_rng(seed), np.empty((times, 2 + groups))
    for draw in draws:
        drawn = np.zeros(len(table), bool)
        while not drawn.any() or _contrasts(table.width[drawn], group[drawn]) < 2:  # nothing to fit: draw again
            picks = [random.choice(own, len(own)) for own in families]
            weight = np.bincount(np.concatenate(picks), minlength=model.max() + 1)[model].astype(float)
            drawn = weight > 0
        law = _Law(table.width, table.loss, group, groups, weight)
        alpha = law.best()
        scale, offsets = law.linear(alpha)
        draw[:] = alpha, scale, *offsets
    return draws


def _left_out(table: Losses) -> dict[str, np.ndarray]:
    """Errors on each model, predicted from the others, under each law. The others must know the offset of a row."""
    sizes = {"1/m": (table.width, 1.0), FREE: (table.width, None)}
    if table.parameters is not None:
        sizes["1/N^α"] = (table.parameters, None)
    _, group = table.groups()
    model = _models(table)
    errors = {name: [np.empty(0)] for name in sizes}
    for k in range(model.max() + 1):
        kept, asked = model != k, (model == k) & np.isin(group, group[model != k])
        if not asked.any() or any(_contrasts(x[kept], group[kept]) < 2 for x, _ in sizes.values()):
            continue
        for name, (x, given) in sizes.items():
            law = _Law(x, table.loss, group, group.max() + 1, kept.astype(float))
            alpha = law.best() if given is None else given
            errors[name].append((table.loss - law.predicted(alpha, *law.linear(alpha)))[asked])
    return {name: np.concatenate(parts) for name, parts in errors.items()}


def _models(table: Losses) -> np.ndarray:
    """A number for the model of each row. The same name in two families means two models."""
    names = np.stack([table.family.astype(str), table.model.astype(str)])
    return np.unique(names, axis=1, return_inverse=True)[1].ravel()


# -- Chinchilla: from parameters to width -----------------------------------------------------------------------------


@dataclass(frozen=True)
class WidthExponent:
    """α_m = growth·α_N where N ~ m^growth."""

    exponent: float
    error: float  # one standard error
    growth: float
    growth_error: float


def width_exponent(
    parameters: np.ndarray, widths: np.ndarray, alpha_n: float = 0.35, error: float = 0.02
) -> WidthExponent:
    """The exponent in width of a family of models, from its exponent in parameters, α_N ± error.   (K,), (K,)

    The defaults are Chinchilla's; `published("chinchilla")` has its models.

    >>> widths = np.array([64.0, 128.0, 256.0])
    >>> round(width_exponent(widths**2, widths).exponent, 3)  # parameters grow as m²
    0.7
    """
    x, y = np.log(widths) - np.log(widths).mean(), np.log(parameters)
    if len(x) < 3 or np.ptp(x) == 0:
        raise UserError("the growth of parameters with width needs three models, of two widths or more")
    growth = float(x @ y / (x @ x))
    rest = y - y.mean() - growth * x
    spread = math.sqrt(rest @ rest / (len(x) - 2) / (x @ x))
    return WidthExponent(growth * alpha_n, math.hypot(growth * error, spread * alpha_n), growth, spread)
