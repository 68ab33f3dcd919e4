"""The figures of the superposition paper from our own runs, beside the published points; and the phase diagram."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from horosphere.files import require_new_file
from horosphere.plots.style import BRANCHES, INK, MUTED, QUIET, log_axis, new_figure, new_panels, save, style
from horosphere.plots.superposition_heads import MARKERS, draw_widths
from horosphere.superposition.published import published
from horosphere.superposition.results import Rows, Setting, settings
from horosphere.superposition.theory import strong_exponent, weak_asymptote, weak_exponent
from horosphere.superposition.toy import READOUTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STRONG, WEAK = -5 / 9, 1 / 3  # the γ of the published figures
LAWS = 3  # of frequencies, side by side where the runs fill none of those figures
PUBLISHED_DENSITIES = (
    1,
    1.811,
    3.432,
    5.053,
    7.485,
)  # of the series of figure 7b, which are named by their colours there


def draw_figures(rows: Rows, folder: str | Path, new: bool = False) -> list[Path]:
    """Write every figure that the runs can fill, as PNG, and return their paths. Without figures there is no folder.

    Runs that fill none of the paper's have their losses drawn. new: none of them may be there yet.
    """
    drawn: dict[Path, Figure] = {}

    def write(figure: Figure | None, name: str, *marks: str) -> None:
        if figure is not None:
            drawn[Path(folder) / f"{'-'.join([name, *filter(None, marks)])}.png"] = figure

    for bias in dict.fromkeys(row["bias"] for row in rows):
        here, mark = [row for row in rows if row["bias"] == bias], "" if bias == "normal" else f"{bias}-bias"
        for readout in dict.fromkeys(row["readout"] for row in here):
            for name, draw in FIGURES.items():
                write(
                    draw([row for row in here if row["readout"] == readout]),
                    name,
                    mark,
                    "" if readout == "dot" else readout,
                )
        write(draw_readouts(here), "readouts", mark)
    if not drawn:
        write(draw_losses(rows), "losses")
    if drawn:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for path in drawn:
        require_new_file(path, overwrite=not new)
    for path, figure in drawn.items():
        save(figure, path, new)
    return list(drawn)


def draw_loss_against_width(rows: Rows) -> Figure | None:
    """Figure 1: n = 10240, three laws of frequencies, weak and strong superposition."""
    regimes = {
        title: settings(rows, n=10240, gamma=gamma)
        for title, gamma in (("weak: γ = 0.1", 0.1), ("strong: γ = -1", -1.0))
    }
    regimes = {title: regime for title, regime in regimes.items() if regime}
    if not regimes:
        return None
    known = published("fig1")
    with style():
        figure, panels = new_panels(4.4, len(regimes))
        for axes, (title, regime) in zip(panels, regimes.items(), strict=True):
            for i, setting in enumerate(regime):
                _power_law(axes, setting, i, setting.law)
                name = {"power:1.2": "power(1.2)", "exponential:400": "exponential(400)"}.get(setting.law, setting.law)
                for series, points in known.items():
                    if name in series and f"gamma={setting.gamma:g}" in series:
                        _published(axes, points, i)
            draw_widths(axes, np.array([8, 1024]))
            _finish_panel(axes, title, "loss")
    return figure


def draw_represented(rows: Rows) -> Figure | None:
    """Figure 3a: the fraction of represented features against γ, a series a width; frequencies ∝ 1/i."""
    chosen = settings(rows, n=1000, law="power:1", density=1.0)
    if len({s.gamma for s in chosen}) < 3:
        return None
    chosen.sort(key=lambda s: s.gamma)
    with style():
        figure, axes = new_figure(4.4)
        for i, m in enumerate(chosen[0].widths):
            at = [(s.gamma, s.represented[:, list(s.widths).index(m)].mean()) for s in chosen if m in s.widths]
            _series(axes, at, i, f"m = {m}")
            if (points := published("fig3a").get(str(m))) is not None:
                _published(axes, points, i)
        axes.set(xlabel="γ: growth to unit norm | decay", ylim=(-0.03, 1.03))
        _finish_panel(axes, "hollow: published", "features with |W_i| > ½")
    return figure


def draw_weak_exponents(rows: Rows) -> Figure | None:
    """Figure 5b: α_m against the skew of frequencies in the weak regime. Beside it the theory for this n, and α - 1."""
    chosen = [s for s in settings(rows, n=1000, density=1.0) if s.gamma > 0 and s.alpha > 1]
    if len({s.alpha for s in chosen}) < 3:
        return None
    with style():
        figure, axes = new_figure(4.4)
        _exponents(axes, chosen, "fig5b")
        widths = chosen[0].widths.tolist()
        alphas = np.linspace(1.05, 2, 20)
        axes.plot(
            alphas,
            [weak_exponent(f"power:{a:g}", 1000, 1.0, widths) for a in alphas],
            color=INK,
            linewidth=1.4,
            label="weak theory, n = 1000",
        )
        axes.plot(alphas, [weak_asymptote(a) for a in alphas], color=MUTED, linestyle=":", linewidth=1.4, label="α - 1")
        axes.set(xlabel="α of the frequencies i^-α")
        _finish_panel(axes, "weak superposition; hollow: published", "α_m")
    return figure


def draw_strong_exponents(rows: Rows) -> Figure | None:
    """Figure 6e: α_m against the skew of frequencies in the strong regime."""
    chosen = [s for s in settings(rows, n=1000, density=1.0) if s.gamma < -0.2]
    if len({s.alpha for s in chosen}) < 3:
        return None
    with style():
        figure, axes = new_figure(4.4)
        _exponents(axes, chosen, "fig6e")
        alphas = np.linspace(0, 2, 41)
        axes.plot(
            alphas, [strong_exponent(a) for a in alphas], color=INK, linewidth=1.4, label="theory: 1, then 2(α - 1)"
        )
        axes.set(xlabel="α of the frequencies i^-α")
        _finish_panel(axes, "strong superposition; hollow: published", "α_m")
    return figure


def draw_density(rows: Rows) -> Figure | None:
    """Figures 7a and 7b: loss against the mean number of active features at m = 63, and against width at γ = -5/9.

    Runs that have only one of them fill one panel.
    """
    chosen = settings(rows, n=1000, law="power:1")
    if len({s.density for s in chosen}) < 3:
        return None
    chosen.sort(key=lambda s: s.density)
    one_width, one_decay = [s for s in chosen if 63 in s.widths], [s for s in chosen if abs(s.gamma - STRONG) < 5e-3]
    if not one_width and not one_decay:
        return None
    with style():
        figure, panels = new_panels(4.4, bool(one_width) + bool(one_decay))
        if one_width:
            _against_density(panels[0], one_width)
        if one_decay:
            for i, setting in enumerate(one_decay):
                _power_law(panels[-1], setting, i, f"E = {setting.density:.3g}")
                for density, points in zip(PUBLISHED_DENSITIES, published("fig7b").values(), strict=True):
                    if abs(density - setting.density) < 5e-3:
                        _published(panels[-1], points, i)
            draw_widths(panels[-1], np.array([10, 100]))
            _finish_panel(panels[-1], "γ = -0.56; hollow: published", "loss")
        for axes in panels:
            axes.legend(
                labelcolor=INK, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1)
            )  # beside the points: they fill the picture
    return figure


def _against_density(axes: Axes, chosen: list[Setting]) -> None:
    """Loss at m = 63, a series a γ."""
    for i, gamma in enumerate(sorted({s.gamma for s in chosen})):
        at = [(s.density, s.losses[:, list(s.widths).index(63)].mean()) for s in chosen if s.gamma == gamma]
        _series(axes, at, i, f"γ = {gamma:.2f}")
        for series, points in published("fig7a").items():
            if abs(float(series) - gamma) < 5e-3:
                _published(axes, points, i)
    axes.set(xlabel="mean number of active features")
    log_axis(axes, "y")
    _finish_panel(axes, "m = 63; hollow: published", "loss")


def draw_phases(rows: Rows) -> Figure | None:
    """The phase diagram: α_m, and the fraction of represented features at the largest width, over skew and γ."""
    chosen = settings(rows, n=1000, density=1.0)
    alphas, gammas = sorted({s.alpha for s in chosen if s.alpha == s.alpha}), sorted({s.gamma for s in chosen})
    if len(alphas) < 4 or len(gammas) < 4:
        return None
    at = {(s.alpha, s.gamma): s for s in chosen}
    views: tuple[tuple[str, Callable[[Setting], float], tuple[float, float]], ...] = (
        ("α_m", lambda s: s.fit.exponent, (0, 2)),
        ("features with |W_i| > ½, widest model", lambda s: float(s.represented[:, -1].mean()), (0, 1)),
    )
    with style():
        figure, panels = new_panels(4.2, 2)
        for axes, (title, value, (low, high)) in zip(panels, views, strict=True):
            grid = np.array([[value(at[a, g]) if (a, g) in at else np.nan for a in alphas] for g in gammas])
            image = axes.pcolormesh(alphas, gammas, grid, cmap="viridis", vmin=low, vmax=high, shading="nearest")
            figure.colorbar(image, ax=axes, pad=0.02).outline.set_visible(False)
            axes.set(xlabel="α of the frequencies i^-α", ylabel="γ")
            axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    return figure


def draw_readouts(rows: Rows) -> Figure | None:
    """Loss against width by each read-out, for the smallest and the largest γ that several of them have."""
    groups: dict[tuple[int, str, float], dict[float, list[Setting]]] = {}
    for setting in settings(rows):
        groups.setdefault((setting.n, setting.law, setting.density), {}).setdefault(setting.gamma, []).append(setting)
    several = [{gamma: same for gamma, same in group.items() if len(same) > 1} for group in groups.values()]
    chosen = max(several, key=len, default={})
    if not chosen:
        return None
    gammas = sorted({min(chosen), max(chosen)})
    with style():
        figure, panels = new_panels(4.4, len(gammas))
        for axes, gamma in zip(panels, gammas, strict=True):
            for setting in chosen[gamma]:
                _power_law(axes, setting, READOUTS.index(setting.readout), setting.readout)
            draw_widths(axes, chosen[gamma][0].widths)
            _finish_panel(axes, f"{chosen[gamma][0].law}, γ = {gamma:.2f}", "loss")
    return figure


def draw_losses(rows: Rows) -> Figure | None:
    """Loss against width for whatever was trained: a panel a law of frequencies, a series a setting."""
    panels_of: dict[tuple[str, int], list[Setting]] = {}
    for setting in settings(rows):
        panels_of.setdefault((setting.law, setting.n), []).append(setting)
    if not panels_of:
        return None
    shown = list(panels_of.items())[:LAWS]
    with style():
        figure, panels = new_panels(4.4, len(shown))
        for axes, ((law, n), same) in zip(panels, shown, strict=True):
            several = len({setting.density for setting in same}) > 1
            for i, setting in enumerate(same[: len(BRANCHES)]):
                marks = [f"E = {setting.density:.3g}"] * several + ["b = 0"] * (setting.bias == "zero")
                marks += [setting.readout] * (setting.readout != "dot")
                _power_law(axes, setting, i, ", ".join([f"γ = {setting.gamma:.2f}", *marks]))
            draw_widths(axes, np.concatenate([setting.widths for setting in same]))
            left_out = max(0, len(same) - len(BRANCHES))
            _finish_panel(axes, f"{law}, n = {n}" + f"; {left_out} settings not shown" * bool(left_out), "loss")
    return figure


FIGURES: dict[str, Callable[[Rows], Figure | None]] = {
    "figure-1": draw_loss_against_width,
    "figure-3": draw_represented,
    "figure-5": draw_weak_exponents,
    "figure-6": draw_strong_exponents,
    "figure-7": draw_density,
    "phases": draw_phases,
}


def _exponents(axes: Axes, chosen: list[Setting], name: str) -> None:
    """α_m with its interval against α, a series a γ; the published ones hollow."""
    known = published(name)
    for i, gamma in enumerate(sorted({s.gamma for s in chosen})):
        here = sorted((s for s in chosen if s.gamma == gamma), key=lambda s: s.alpha)
        x, y = np.array([s.alpha for s in here]), np.array([s.fit.exponent for s in here])
        error = np.abs(np.array([[s.fit.low, s.fit.high] for s in here]).T - y)
        axes.errorbar(
            x,
            y,
            np.nan_to_num(error),
            fmt=MARKERS[i % 10] + "-",
            color=BRANCHES[i % 9],
            markersize=5,
            linewidth=1.2,
            label=f"γ = {gamma:.2f}",
        )
        for series, points in known.items():
            if abs(float(series) - gamma) < 5e-3:
                _published(axes, points, i)


def _series(axes: Axes, points: list[tuple[float, float]], i: int, label: str) -> None:
    color, marker = BRANCHES[i % len(BRANCHES)], MARKERS[i % len(MARKERS)]
    axes.plot(*np.array(points).T, marker + "-", color=color, markersize=5, linewidth=1.2, label=label)


def _power_law(axes: Axes, setting: Setting, i: int, label: str) -> None:
    color, fit = BRANCHES[i % len(BRANCHES)], setting.fit
    middle = np.exp(np.log(setting.losses).mean(0))
    axes.plot(
        setting.widths, middle, MARKERS[i % 10], color=color, markersize=5, label=f"{label}   α_m = {fit.exponent:.2f}"
    )
    axes.plot(setting.widths, fit.scale * setting.widths.astype(float) ** -fit.exponent, color=color, linewidth=1.2)


def _published(axes: Axes, points: np.ndarray, i: int) -> None:
    axes.plot(*points.T, MARKERS[i % 10], color=BRANCHES[i % len(BRANCHES)], fillstyle="none", markersize=7, alpha=0.7)


def _finish_panel(axes: Axes, title: str, ylabel: str) -> None:
    axes.set(ylabel=ylabel)
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    axes.grid(color=QUIET, alpha=0.25)
    axes.legend(labelcolor=INK, fontsize=8)
