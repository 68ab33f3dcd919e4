"""Pictures of language models show the numbers they were given, at a size a page can hold; the report says who won."""

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
    draw_attention_distance,
    draw_curvatures,
    draw_expert_load,
    draw_ricci,
    draw_token_radius,
)
from horosphere.plots.language_report import add_language, pictures, save_study
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


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_radius_against_frequency():
    tokens = radius()
    figure = draw_token_radius({"helm": tokens, "twin": radius(1, sign=1)}, LABELS)
    one, other = figure.axes
    assert one.get_xscale() == "log"
    assert f"{tokens.correlation:+.2f}" in one.get_title(loc="left")
    assert tokens.correlation < 0 < radius(1, sign=1).correlation
    points = one.collections[0].get_offsets()
    np.testing.assert_allclose(np.asarray(points), np.stack([tokens.counts, tokens.radius], 1))
    means = one.lines[0].get_xydata()[:, 1]
    np.testing.assert_allclose(means, [b.mean for b in tokens.bins])
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
    for dots, mark in ((starts, "start"), (ends, "learned")):
        np.testing.assert_allclose(
            [d.get_offsets()[0][0] for d in dots], [c for layer in CURVATURES for c in getattr(layer, mark).tolist()]
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
    drawn = [figure for _, figure, _ in pictures(a_study())]
    assert len(drawn) == 5
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


# -- the report -------------------------------------------------------------------------------------------------------


def test_a_page_shows_what_is_inside(monkeypatch):
    monkeypatch.setattr(report_module, "render", lambda figure, **_: b"a picture")
    report = Report("demo")
    add_language(report, None, a_study())
    html = report.html()
    assert "Inside helm" in html
    assert html.count("<img ") == 5


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
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(UserError, match=r"holds no report\.html"):
        save_study(study, tmp_path / "mine", overwrite=True)
