"""Pictures of language models show the numbers they were given, at a size a page can hold; the report says who won."""

import json
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgba

from horosphere.errors import UserError
from horosphere.geometry import Euclidean
from horosphere.measure.language import ExpertCurvature, LanguageStats, TokenStudy
from horosphere.measure.ricci import Ricci
from horosphere.measure.tokens import expert_load, token_radius
from horosphere.plots import language
from horosphere.plots import report as report_module
from horosphere.plots.language import (
    Curve,
    draw_attention_distance,
    draw_curvatures,
    draw_curves,
    draw_expert_load,
    draw_ricci,
    draw_token_radius,
)
from horosphere.plots.language_report import Duel, LanguageRun, add_language, pictures, save_study
from horosphere.plots.report import Report, require_page_place
from horosphere.plots.style import render

SIZE = 60
LABELS = [f"␣word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(SIZE)]


def radius(seed=0, sign=-1):
    counts = np.arange(1, SIZE + 1) ** 2
    noise = torch.rand(SIZE, generator=torch.Generator().manual_seed(seed))
    return token_radius((5 + sign * torch.from_numpy(counts).log() / 3 + 0.1 * noise)[:, None], Euclidean(), counts)


def ricci(shift=0.0):
    return Ricci(np.zeros((50, 2), np.int64), np.linspace(-1, 0, 50) + shift, sampled=True)


LOAD = expert_load(torch.tensor([[10, 20, 30, 40], [25, 25, 25, 25]]))
CURVATURES = [
    ExpertCurvature(layer, torch.tensor([0.1, 1.0, 0.5]), torch.tensor([0.2, 0.7, 0.5]), routed=2) for layer in (1, 2)
]
DISTANCE = torch.tensor([[1.0, 2, 3], [4, 5, 9]])


def stats(mixture=True):
    curved = (LOAD, [1, 2], CURVATURES, torch.ones(2), torch.ones(2, 2))
    return LanguageStats(16, DISTANCE, *(curved if mixture else (None, [], [], None, None)))


def a_study(mixture=True):
    return TokenStudy(
        LABELS,
        {"helm": radius(), "twin": radius(1, sign=1)},
        {"helm": stats(mixture), "twin": stats(False)},
        ricci(),
        ricci(0.1),
    )


def texts(axes):
    return [text.get_text() for text in axes.texts]


# -- pictures -----------------------------------------------------------------------------------------------------------


def test_a_twin_is_dashed_in_the_colour_of_its_model():
    curves = {"a": Curve([1, 2], [3.0, 2.0]), "b": Curve([1, 2], [3.0, 2.5]), "flat a": Curve([1, 2], [3.0, 1.25], "a")}
    axes = draw_curves(curves).axes[0]
    a, b, flat = axes.lines
    assert (a.get_linestyle(), b.get_linestyle(), flat.get_linestyle()) == ("-", "-", "--")
    assert a.get_color() == flat.get_color() != b.get_color()
    assert flat.get_xydata().tolist() == [[1, 3.0], [2, 1.25]]
    assert [text.get_text().split() for text in axes.get_legend().get_texts()] == [
        ["a", "2.000"],
        ["b", "2.500"],
        ["flat", "a", "1.250"],
    ]


def test_more_runs_than_colours_and_a_run_of_one_evaluation():
    curves = {str(i): Curve([1], [2.0]) for i in range(12)}
    assert all(line.get_marker() == "o" for line in draw_curves(curves).axes[0].lines)


def test_radius_against_frequency():
    found = radius()
    figure = draw_token_radius({"helm": found, "twin": radius(1, sign=1)}, LABELS)
    one, other = figure.axes
    assert one.get_xscale() == "log"
    assert f"{found.correlation:+.2f}" in one.get_title(loc="left")
    assert found.correlation < 0 < radius(1, sign=1).correlation
    points = one.collections[0].get_offsets()
    np.testing.assert_allclose(np.asarray(points), np.stack([found.counts, found.radius], 1))
    means = one.lines[0].get_xydata()[:, 1]
    np.testing.assert_allclose(means, [b.mean for b in found.bins])
    named = texts(one)
    assert LABELS[-1][1:] in named  # the nearest to the origin
    assert len(named) <= 2 * language.NAMED
    assert all(name.startswith("word") for name in named)
    assert texts(other)


def test_names_do_not_cover_each_other():
    axes = draw_token_radius({"helm": radius()}, LABELS, named=30, seen=1).axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert 2 < len(boxes) < 60
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_ticks_are_plain_text():
    """Math is off, so that a label may hold a dollar sign: ticks that come as math would show their source."""
    for figure in (draw_token_radius({"helm": radius()}, LABELS), draw_curvatures(CURVATURES)):
        figure.draw_without_rendering()
        ticks = [
            t.get_text()
            for axes in figure.axes
            for t in (*axes.get_xticklabels(which="both"), *axes.get_yticklabels(which="both"))
        ]
        assert any(ticks)
        assert not any("$" in tick for tick in ticks)


def test_experts_go_from_hollow_to_full():
    axes = draw_curvatures(CURVATURES).axes[0]
    dots = axes.collections
    starts, ends = dots[::2], dots[1::2]
    for found, mark in ((starts, "start"), (ends, "learned")):
        np.testing.assert_allclose(
            [d.get_offsets()[0][0] for d in found], [c for layer in CURVATURES for c in getattr(layer, mark).tolist()]
        )
    assert all(tuple(d.get_facecolor()[0]) == to_rgba(language.PAPER) for d in starts)
    assert not any(tuple(d.get_facecolor()[0]) == to_rgba(language.PAPER) for d in ends)
    assert [to_hex(d.get_facecolor()[0]) == language.INK for d in ends] == [False, False, True] * 2  # the shared ones
    assert [t.get_text() for t in axes.get_yticklabels()] == ["layer 1", "layer 2"]
    with pytest.raises(UserError, match="nothing to draw"):
        draw_curvatures([])


def test_load_in_units_of_the_fair_share():
    axes = draw_expert_load(LOAD, [1, 2]).axes[0]
    assert texts(axes) == ["0.40", "0.80", "1.20", "1.60", "1.00", "1.00", "1.00", "1.00"]
    many = expert_load(torch.ones(20, 64))
    assert not texts(draw_expert_load(many, range(20)).axes[0])


def test_every_head_is_a_dot():
    axes = draw_attention_distance({"helm": DISTANCE, "twin": DISTANCE + 1}, length=17).axes[0]
    assert [d.get_offsets()[:, 1].tolist() for d in axes.collections] == [
        DISTANCE.flatten().tolist(),
        (DISTANCE + 1).flatten().tolist(),
    ]
    assert axes.lines[0].get_ydata().tolist() == [2, 6]
    assert axes.lines[2].get_ydata()[0] == 4  # (17 - 1)/4
    assert len(draw_attention_distance({"helm": DISTANCE}).axes[0].lines) == 1


def test_ricci_beside_its_noise():
    axes = draw_ricci(ricci(), ricci(0.25)).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["flat noise, mean -0.250", "tokens, mean -0.500"]
    alike = Ricci(np.zeros((3, 2), np.int64), np.full(3, -0.5), sampled=False)
    draw_ricci(alike, alike)


def test_pictures_fit_a_page_and_can_be_read():
    drawn = [draw_curves({"a": Curve([1, 2], [2.0, 1.0])}), *(figure for _, figure, _ in pictures(a_study()))]
    assert len(drawn) == 6
    for figure in drawn:
        assert figure.get_figwidth() * 96 <= 900
        assert render(figure, dpi=40).startswith(b"\x89PNG")
        sizes = [
            t.get_fontsize()
            for axes in figure.axes
            for t in (*axes.texts, *axes.get_xticklabels(), axes.xaxis.label, axes.yaxis.label)
        ]
        assert min(sizes) >= 8


def test_a_picture_is_saved_where_told(tmp_path):
    draw_ricci(ricci(), ricci(), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


# -- the report ---------------------------------------------------------------------------------------------------------


def a_run(name, bits, twin_of=None):
    return LanguageRun(name, 1234567, Curve([100, 2000], [3.0, bits], twin_of), 61.4, f"{name} says\n <b>hello</b>")


@pytest.mark.parametrize(
    ("curved", "flat", "said"),
    [
        (1.5, 1.75, "beats its flat twin Flat by 0.250"),
        (1.75, 1.5, "loses to its flat twin Flat by 0.250"),
        (1.5, 1.5001, "are level"),
    ],
)
def test_the_verdict_goes_by_the_numbers(curved, flat, said):
    duel = Duel(a_run("Helm", curved), a_run("Flat", flat))
    assert said in duel.verdict()
    assert ("does not pay" in duel.verdict()) == (said.startswith("loses"))
    assert duel.verdict().endswith("One run of each says nothing about chance.")
    _, cells = duel.cells()
    assert cells[0][0] == ("Helm" if curved < flat else "Flat")
    assert cells[0][1:] == ["1,234,567", "2,000", f"{min(curved, flat):.3f}", "61 s"]


def test_a_run_is_read_from_its_folder(tmp_path):
    (tmp_path / "run.json").write_text(
        json.dumps({"recipe": {"parameters": 77, "length": 10}, "training": {"batch": 4}})
    )
    lines = [
        {"step": 5, "loss": 3.0, "seconds": 1.5},
        {"step": 5, "eval_bits_per_byte": 2.5},
        {"step": 10, "eval_bits_per_byte": 2.0},
    ]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, {"step": 10, "seconds": 3.0}])
    )
    found = LanguageRun.read("helm", tmp_path, "text", twin_of="other")
    assert found == LanguageRun("helm", 77, Curve([200, 400], [2.5, 2.0], "other"), 3.0, "text")


def test_the_page_says_who_lost(monkeypatch):
    monkeypatch.setattr(report_module, "render", lambda figure, **_: b"a picture")
    report, duel = Report("demo"), Duel(a_run("Helm", 2.0), a_run("Flat", 1.5, "Helm"))
    add_language(report, "a text", duel, a_study())
    html = report.html()
    assert duel.verdict() in html
    assert "Helm writes: Helm says &lt;b&gt;hello" in html
    assert html.count("<img ") == 6
    assert re.findall("<tr class=best><td>(.*?)</td>", html) == ["Flat"]
    assert not re.search(r"""src=(?!"data:)|href|url\(|@import|<script|<link""", html)


def test_a_dense_model_has_fewer_pictures():
    assert [name for name, _, _ in pictures(a_study(mixture=False))] == ["token-radius", "attention-distance", "ricci"]


def test_the_caption_follows_the_sign():
    captions = {name: caption for name, _, caption in pictures(a_study())}
    assert "lie nearer the origin" in captions["token-radius"]
    assert "here -0.100" in captions["ricci"]
    other = TokenStudy(LABELS, {"helm": radius(sign=1)}, {"helm": stats()}, ricci(), ricci())
    assert "farther out, not nearer" in next(pictures(other))[2]


def test_a_study_as_a_page_or_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(
        report_module, "render", lambda figure, **_: b"a picture"
    )  # pictures take seconds, and are tested above
    study = a_study()
    save_study(study, tmp_path / "tokens.html")
    html = (tmp_path / "tokens.html").read_text(encoding="utf-8")
    assert f"{study.radius['helm'].correlation:+.2f}" in html
    save_study(study, tmp_path / "folder")
    names = {"token-radius", "expert-curvatures", "expert-load", "attention-distance", "ricci"}
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {
        "report.html",
        *(f"{name}.png" for name in names),
    }
    for out in ("tokens.html", "folder"):
        with pytest.raises(UserError, match="exists already"):
            require_page_place(tmp_path / out)
        save_study(study, tmp_path / out, overwrite=True)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match=r"holds no report\.html"):
        save_study(study, tmp_path / "mine", overwrite=True)
