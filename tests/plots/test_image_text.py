"""Captions around the root, walks of pictures, scores against radius: every mark where its number is."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from matplotlib.colors import to_hex
from PIL import Image

from horosphere.catalogue import Entrant
from horosphere.evaluate.metric import Metric
from horosphere.measure.captions import CaptionMap
from horosphere.plots.image_text import (
    STEPS,
    adaptation_report,
    add_image_text,
    draw_maps,
    draw_radius_sweep,
    draw_walks,
)
from horosphere.plots.report import Report
from horosphere.plots.style import ACCENT, BRANCHES, INK, LINE, MUTED, QUIET
from horosphere.study.table import Results, Row
from horosphere.tasks.image_text import ImageText, Mapped
from tests.plots.reading import colour, error_bars, key, named_lines, read_page

METRICS = (
    Metric("order", "τ_d", 3, "high", "judged"),
    Metric("r5", "R@5", 2, "high", "judged"),
    Metric("radius", "radius", 2, "high"),
)


def results(column="radius"):
    """Four radii out of order, the network as it was, and one without a target."""
    means = {"target 3": 3.0, "target 1": 1.0, "target 4": 4.0, "target 2": 2.0, "before": 1.5, "free": 2.5}
    rows = [
        Row(
            Entrant(name),
            100,
            {"radius": [at - 0.1, at + 0.1], "order": [at / 10, at / 10 + 0.02], "r5": [1 / at, 1 / at + 0.3]},
            seconds=[1.0],
            step_ms=1.0,
            curve_of="order",
            curve=[],
            folders=[],
        )
        for name, at in means.items()
    ]
    return Results("a study", column, "captions", "captions", "order", METRICS, rows, 2, {})


def caption_map(seed=0, levels=3, pictures=4, walks=None):
    rng = np.random.default_rng(seed)
    radii = np.sort(rng.uniform(0.5, 4, (5, levels)), axis=1)
    angles = rng.uniform(-3, 3, (5, levels))
    return CaptionMap(radii, angles, np.linspace(6, 1, pictures), rng.uniform(-3, 3, pictures), walks or {})


# -- scores against radius --------------------------------------------------------------------------------------------


def test_scores_against_the_radius_that_was_reached():
    figure = draw_radius_sweep(results())
    for axes, name, metric in zip(figure.axes, ("order", "r5"), METRICS, strict=False):
        (bars,) = (b for b in error_bars(axes).values())
        at = np.array([1.0, 2.0, 3.0, 4.0])
        mean, spread = (at / 10 + 0.01, 0.02 / 2**0.5) if name == "order" else (1 / at + 0.15, 0.3 / 2**0.5)
        np.testing.assert_allclose([bars.x, bars.y], [at, mean])
        np.testing.assert_allclose([bars.low, bars.high], [mean - spread, mean + spread])
        assert bars.colour == ACCENT
        for other, x in (("before", 1.5), ("free", 2.5)):
            (mark,) = named_lines(axes)[other].get_xydata()
            np.testing.assert_allclose(mark, [x, x / 10 + 0.01 if name == "order" else 1 / x + 0.15])
            assert colour(named_lines(axes)[other]) == QUIET
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("mean radius 2|z| of texts", metric.head)
    assert set(key(figure.axes[0])) == {"with a target", "before", "free"}
    marks = [named_lines(figure.axes[0])[name].get_marker() for name in ("before", "free")]
    assert len(set(marks)) == 2


# -- maps -------------------------------------------------------------------------------------------------------------


def by_label(axes):
    """{label: (offsets, colour)} of the dots."""
    return {
        c.get_label(): (np.asarray(c.get_offsets()), to_hex(c.get_facecolor()[0]))
        for c in axes.collections
        if not c.get_label().startswith("_")
    }


def test_a_map_has_every_caption_at_its_radius_and_angle():
    maps = {"before": caption_map(0), "after": caption_map(1)}
    figure = draw_maps(maps)
    assert [axes.get_title() for axes in figure.axes] == ["before", "after"]
    for axes, seen in zip(figure.axes, maps.values(), strict=True):
        far = seen.radii.max()
        shown = by_label(axes)
        assert list(shown) == ["pictures", "most general", "level 2", "most specific"]
        for level, label in enumerate(("most general", "level 2", "most specific")):
            offsets, own = shown[label]
            r, turn = seen.radii[:, level] / far, seen.angles[:, level]
            np.testing.assert_allclose(offsets, np.stack([r * np.cos(turn), r * np.sin(turn)], 1))
            assert own == BRANCHES[level]
        r = np.minimum(seen.picture_radii / far, 1.25)  # those beyond are drawn at the edge
        assert (seen.picture_radii / far > 1.25).any()
        places = np.stack([r * np.cos(seen.picture_angles), r * np.sin(seen.picture_angles)], 1)
        np.testing.assert_allclose(shown["pictures"][0], places)
        rings = [np.linalg.norm(line.get_xydata(), axis=1) for line in axes.lines]
        np.testing.assert_allclose([ring.mean() for ring in rings], [0.25, 0.5, 0.75, 1.0])
        assert {colour(line) for line in axes.lines} == {LINE}
        root = axes.collections[-1]
        assert np.asarray(root.get_offsets()).tolist() == [[0, 0]]
        assert to_hex(root.get_edgecolor()[0]) == INK
        assert axes.get_aspect() == 1


def test_a_map_has_no_numbers_at_its_edges():
    for axes in draw_maps({"before": caption_map(1), "after": caption_map(2)}).axes:
        assert not [*axes.get_xticks(), *axes.get_yticks()]


def test_the_key_of_maps_has_the_colours_of_their_dots():
    figure = draw_maps({"after": caption_map(2, levels=4)})
    (legend,) = figure.legends
    told = {
        t.get_text(): to_hex(h.get_facecolor()[0])
        for t, h in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }
    assert list(told) == ["pictures", "most general", "level 2", "level 3", "most specific"]
    shown = by_label(figure.axes[0])
    assert told == {label: own for label, (_, own) in shown.items()}
    assert list(told.values()) == [MUTED, *BRANCHES[:4]]
    assert "pictures" not in by_label(draw_maps({"texts": caption_map(pictures=0)}).axes[0])


# -- walks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path):
    """Pictures of one colour each, and not square."""
    paths = []
    for number, shade in enumerate(((250, 0, 0), (0, 240, 0), (0, 0, 230), (220, 210, 0))):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", (40, 24), shade).save(paths[-1])
    return paths


def walks_of(name, numbers):
    return {number: [f"{name} {number} step {step}" for step in range(3 + number * 3)] for number in numbers}


def test_a_row_holds_a_picture_and_its_own_walks(photos):
    maps = {name: caption_map(walks=walks_of(name, (2, 0))) for name in ("before", "after")}
    figure = draw_walks(photos, maps)
    grid = np.array(figure.axes).reshape(2, 3)
    for row, number, shade in zip(grid, (2, 0), ((0, 0, 230), (250, 0, 0)), strict=True):
        (image,) = row[0].images
        assert np.abs(np.asarray(image.get_array())[..., :3].reshape(-1, 3).mean(0) - shade).max() < 2
        for axes, name in zip(row[1:], maps, strict=True):
            title, *steps = axes.texts
            assert title.get_text() == name
            lines = [step.get_text() for step in steps]
            walk = maps[name].walks[number]
            expected = walk if number == 0 else [*walk[:4], "…", *walk[-2:]]
            assert lines == expected
            assert len(lines) <= STEPS
            heights = [step.get_position()[1] for step in steps]
            assert heights == sorted(heights, reverse=True)  # from general above to specific below
            assert title.get_position()[1] > heights[0]
    assert not any(axes.axison for axes in figure.axes)


def test_long_captions_are_cut(photos):
    maps = {"after": caption_map(walks={0: ["word " * 60]})}
    assert len(draw_walks(photos, maps).axes[1].texts[1].get_text()) <= 124


# -- pages ------------------------------------------------------------------------------------------------------------


def test_the_page_of_a_study(photos, album):
    seen = Mapped({"after": caption_map(walks=walks_of("after", (1,)))}, photos)
    for column, shown in (("radius", 3), ("model", 2)):
        report = Report("a study")
        add_image_text(report, results(column), seen)
        page = read_page(report.html())
        heads = ["Captions around the root", "From general to specific"]
        assert page.of("h2") == (["Score against radius"] if column == "radius" else []) + heads
        alts = ["score against radius", "captions around the root", "walks of pictures"][-shown:]
        images = page.of("img")
        assert [image.alt for image in images] == alts
        figures = [album[image.content] for image in images]
        assert figures[-2].axes[0].get_title() == "after"
        assert figures[-1].axes[0].images
        assert column != "radius" or figures[0].axes[0].get_xlabel() == "mean radius 2|z| of texts"
    report = Report("without walks")
    add_image_text(report, results("model"), Mapped({"after": caption_map()}, []))
    assert [image.alt for image in read_page(report.html()).of("img")] == ["captions around the root"]


@pytest.mark.parametrize("ordered", [True, False])
def test_the_page_of_an_adaptation(monkeypatch, album, ordered):
    first, last = {"r5": 0.25, "radius": 1.0}, {"r5": 0.75, "radius": 2.0}
    if ordered:
        first, last = first | {"order": 0.5}, last | {"order": 0.875, "length_order": 0.625}
    recipe = {"task": {"objective": "radial", "towers": "/some/where/towers"}, "model": {"method": "lora"}}
    run = SimpleNamespace(
        evaluations=lambda: [first, {"r5": -1.0, "order": -1.0, "length_order": -1.0}, last],
        about=SimpleNamespace(recipe=recipe, made_with={"command": "adapt"}),
    )
    monkeypatch.setattr(
        ImageText, "examine", lambda runs: Mapped({name: caption_map() for name in ("before", *runs)}, [])
    )
    page = read_page(adaptation_report(run).html())
    assert page.heading == "radial, lora on towers: what changed"
    said = "The order of captions, τ_d, went from 0.500 to 0.875. The length of a caption alone gives 0.625."
    assert page.of("p")[0] == (said if ordered else "Each text should find its picture; R@5 went from 0.250 to 0.750.")
    scores, made = page.of("table")
    assert scores.head == ["", "before", "after"]
    rows = {row[0]: row[1:] for row in scores.rows}
    titles = {metric.name: metric for metric in ImageText.metrics}
    for name in first.keys() & titles.keys():
        metric = titles[name]
        assert rows[metric.title] == [f"{first[name]:.{metric.digits}f}", f"{last[name]:.{metric.digits}f}"]
    assert made.rows == [["command", "adapt"]]
    (image,) = page.of("img")
    assert [axes.get_title() for axes in album[image.content].axes] == ["before", "after"]
