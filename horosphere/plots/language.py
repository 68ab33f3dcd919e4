"""Pictures of language models: learning curves, where tokens live, what experts, heads and neighbourhoods look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from horosphere.errors import UserError
from horosphere.measure.language import SEEN, SPACE, ExpertCurvature, word_examples
from horosphere.measure.ricci import Ricci
from horosphere.measure.tokens import ExpertLoad, TokenRadius
from horosphere.plots.style import (
    ACCENT,
    BRANCHES,
    INK,
    MUTED,
    PAPER,
    QUIET,
    SHADE,
    finish,
    log_axis,
    new_figure,
    new_panels,
    overlaid,
    plain_number,
    short_count,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS = 20_000  # tokens drawn at most: more hide each other
NAMED = 6  # tokens named at either end
SPELLED = 160  # cells of a heat map that still have room for their numbers


def draw_token_radius(
    models: Mapping[str, TokenRadius],
    labels: Sequence[str],
    path: str | Path | None = None,
    named: int = NAMED,
    seen: int = SEEN,
) -> Figure:
    """Distance from the origin against how often a token was seen, one panel a model.

    A line goes through the mean ± standard deviation of each tenth of the tokens. Of the words seen at least `seen`
    times, those nearest to the origin and those farthest from it are named.
    """
    with style():
        figure, panels = new_panels(4.6, len(models))
        for axes, (name, tokens) in zip(panels, models.items(), strict=True):
            known = np.flatnonzero(tokens.counts > 0)
            drawn = known if len(known) <= DOTS else np.random.default_rng(0).choice(known, DOTS, replace=False)
            axes.scatter(
                tokens.counts[drawn], tokens.radius[drawn], s=5, color=QUIET, alpha=0.35, linewidths=0, rasterized=True
            )
            middle = [np.sqrt(b.lowest * b.highest) for b in tokens.bins]
            mean, std = [b.mean for b in tokens.bins], [b.std for b in tokens.bins]
            axes.errorbar(
                middle,
                mean,
                yerr=std,
                color=ACCENT,
                fmt="o-",
                markersize=5,
                linewidth=1.6,
                elinewidth=1,
                label="mean of a tenth",
            )
            log_axis(axes, "x", short_count)
            axes.set(xlabel="times seen in the text")
            axes.set_title(
                f"{name}: rank correlation {tokens.correlation:+.2f}", loc="left", fontsize=10.5, fontweight="bold"
            )
            axes.grid()
            figure.draw_without_rendering()  # the layout must be settled before names look for room
            _name_extremes(axes, tokens, labels, named, seen)
        panels[0].set_ylabel("distance from the origin")
    return finish(figure, path)


def draw_curvatures(layers: Sequence[ExpertCurvature], path: str | Path | None = None) -> Figure:
    """Curvature -c of each expert, one band a layer: a hollow dot where training began, a full one where it ended."""
    if not layers:
        raise UserError("no expert of this model learns its curvature: there is nothing to draw")
    experts = max(len(layer.learned) for layer in layers)
    with style():
        figure, axes = new_figure(0.9 + 0.2 * (experts + 1) * len(layers))
        for band, layer in enumerate(layers):
            for expert, (start, learned) in enumerate(zip(layer.start.tolist(), layer.learned.tolist(), strict=True)):
                shared = expert >= layer.routed
                y, color = band * (experts + 1) + expert, INK if shared else BRANCHES[expert % len(BRANCHES)]
                axes.plot([start, learned], [y, y], color=color, linewidth=1.6)
                axes.scatter(start, y, s=32, facecolors=PAPER, edgecolors=color, linewidths=1.4, zorder=3)
                axes.scatter(learned, y, s=34, color=color, marker="D" if shared else "o", zorder=3)
        log_axis(axes, "x", lambda c: f"-{plain_number(c)}")
        axes.set(xlabel="curvature", yticks=[band * (experts + 1) + (experts - 1) / 2 for band in range(len(layers))])
        axes.set(yticklabels=[f"layer {layer.layer}" for layer in layers], ylim=(len(layers) * (experts + 1) - 1, -1))
        axes.grid(axis="x")
    return finish(figure, path)


def draw_expert_load(load: ExpertLoad, layers: Sequence[int], path: str | Path | None = None) -> Figure:
    """Tokens of each expert in units of the fair share, one row a layer."""
    times = (load.shares * load.shares.shape[1]).numpy()
    with style():
        from matplotlib.colors import TwoSlopeNorm
        from matplotlib.ticker import MaxNLocator

        figure, axes = new_figure(1.3 + 0.36 * len(layers))
        scale = TwoSlopeNorm(1, 0, max(2.0, times.max()))  # the fair share is white
        image = axes.imshow(times, cmap="PuOr_r", norm=scale, aspect="auto")
        if times.size <= SPELLED:
            for (row, expert), value in np.ndenumerate(times):
                dark = not 0.15 < scale(value) < 0.85
                axes.text(
                    expert, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=PAPER if dark else INK
                )
        axes.set(yticks=range(len(layers)), yticklabels=[f"layer {layer}" for layer in layers], xlabel="expert")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        bar = figure.colorbar(image, ax=axes, label="times its fair share", pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0)
    return finish(figure, path)


def draw_attention_distance(
    models: Mapping[str, Tensor], length: int | None = None, path: str | Path | None = None
) -> Figure:
    """How far back heads look: a dot for each head, a line through the means of layers.   models: tensors (layers, H)

    length: of the rows read. With it, a line shows attention spread evenly, (length - 1)/4.
    """
    with style():
        from matplotlib.ticker import MaxNLocator

        figure, axes = new_figure(4.0)
        for i, (name, distance) in enumerate(models.items()):
            layers, shift = np.arange(len(distance)), 0.12 * (i - (len(models) - 1) / 2)
            x = np.broadcast_to(layers[:, None] + shift, distance.shape)
            marker, dashes = ("o", "-") if i == 0 else ("^", "--")
            color = BRANCHES[SHADE * i % len(BRANCHES)]  # a twin has the other shade, as in learning curves
            axes.scatter(x, distance.numpy(), s=22, color=color, alpha=0.6, linewidths=0, marker=marker)
            axes.plot(
                layers + shift,
                distance.mean(1).numpy(),
                color=color,
                linestyle=dashes,
                label=f"{name}, mean of heads",
                **overlaid(i, len(models)),
            )
        if length is not None:
            axes.axhline(
                (length - 1) / 4, color=MUTED, linestyle=":", linewidth=1.4, label="looking at everything alike"
            )
        axes.set(xlabel="layer", ylabel="tokens back", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        axes.legend(labelcolor=INK)
    return finish(figure, path)


def draw_ricci(tokens: Ricci, noise: Ricci, path: str | Path | None = None) -> Figure:
    """Ollivier-Ricci curvature of the edges between neighbours, beside that of flat noise as large and as wide."""
    with style():
        figure, axes = new_figure(3.6)
        both = np.concatenate([tokens.curvature, noise.curvature])
        bins = np.linspace(both.min(), max(both.max(), both.min() + 1e-3), 41).tolist()
        for ricci, name, color, fill in ((noise, "flat noise", QUIET, True), (tokens, "tokens", ACCENT, False)):
            weights = np.full(len(ricci.curvature), 1 / len(ricci.curvature))
            label = f"{name}, mean {ricci.mean:+.3f}"
            kind, width, alpha = ("stepfilled", 0.0, 0.45) if fill else ("step", 2.0, 1.0)
            axes.hist(
                ricci.curvature,
                bins,
                weights=weights,
                histtype=kind,  # type: ignore[arg-type]
                color=color,
                linewidth=width,
                alpha=alpha,
                label=label,
            )
            axes.axvline(ricci.mean, color=color, linestyle="--" if fill else "-", linewidth=1.4)
        axes.set(xlabel="Ollivier-Ricci curvature of an edge", ylabel="share of edges")
        axes.grid()
        axes.legend(labelcolor=INK)
    return finish(figure, path)


# -- parts ------------------------------------------------------------------------------------------------------------


def _name_extremes(axes: Axes, tokens: TokenRadius, labels: Sequence[str], named: int, seen: int) -> None:
    """A name that would cover another is left out."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    taken: list[Bbox] = []
    near, far = word_examples(tokens, labels, named, seen)
    for index, side in [(i, -1) for i in near] + [(i, 1) for i in far if i not in near]:
        place = tokens.counts[index], tokens.radius[index]
        halo = withStroke(linewidth=2.5, foreground=PAPER, alpha=0.9)
        text = axes.annotate(
            labels[index].lstrip(SPACE), place, (0, 4 * side), textcoords="offset points",
            fontsize=8.5, ha="center", va="bottom" if side > 0 else "top", zorder=4, path_effects=[halo],
        )  # fmt: skip
        box = text.get_window_extent().padded(2)  # with the light edge around its letters
        if any(box.overlaps(other) for other in taken):
            text.remove()
            continue
        axes.scatter(*place, s=12, color=BRANCHES[2], zorder=3)
        taken.append(box)
