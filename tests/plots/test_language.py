"""Pictures of language models show the numbers they were given, at a size a page can hold; the report says who won."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from horosphere.errors import UserError
from horosphere.geometry import Euclidean
from horosphere.measure.language import ExpertCurvature, LanguageStats, TokenStudy, word_examples
from horosphere.measure.ricci import Ricci
from horosphere.measure.tokens import expert_load, token_radius
from horosphere.plots import language
from horosphere.plots.language import (
    draw_attention_distance,
    draw_curvatures,
    draw_expert_load,
    draw_ricci,
    draw_token_radius,
)
from horosphere.plots.language_report import add_language, pictures, save_study
from horosphere.plots.report import Report, require_page_place
from horosphere.plots.style import BRANCHES, SHADE, render
from tests.plots.reading import colour, dots, error_bars, key, named_lines, read_page, ticks

SIZE = 60
LABELS = [f"␣word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(SIZE)]


def radius(seed=0, sign=-1):
    counts = np.arange(1, SIZE + 1) ** 2
    noise = torch.rand(SIZE, generator=torch.Generator().manual_seed(seed))
    return token_radius((5 + sign * torch.from_numpy(counts).log() / 3 + 0.1 * noise)[:, None], Euclidean(), counts)


def ricci(shift=0.0, edges=50):
    return Ricci(np.zeros((edges, 2), np.int64), np.linspace(-1, 0, edges) + shift, sampled=True)


LOAD = expert_load(torch.tensor([[10, 20, 30, 40], [25, 5, 45, 25]]))
CURVATURES = [
    ExpertCurvature(3, torch.tensor([0.1, 1.0, 0.5]), torch.tensor([0.2, 0.7, 0.6]), routed=2),
    ExpertCurvature(8, torch.tensor([0.3, 1.5, 0.4]), torch.tensor([0.9, 1.1, 0.8]), routed=2),
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
    models = {"helm": radius(), "twin": radius(1, sign=1)}
    figure = draw_token_radius(models, LABELS)
    assert [axes.get_title("left") for axes in figure.axes] == [
        f"{name}: rank correlation {tokens.correlation:+.2f}" for name, tokens in models.items()
    ]
    assert models["helm"].correlation < 0 < models["twin"].correlation
    assert [axes.get_ylabel() for axes in figure.axes] == ["distance from the origin", ""]
    for axes, tokens in zip(figure.axes, models.values(), strict=True):
        assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlabel()) == ("log", "linear", "times seen in the text")
        shown, faces = dots(axes)[0]
        np.testing.assert_allclose(shown, np.stack([tokens.counts, tokens.radius], 1))
        assert set(faces) == {language.QUIET}
        (bars,) = error_bars(axes).values()
        np.testing.assert_allclose(bars.x, [np.sqrt(b.lowest * b.highest) for b in tokens.bins])
        mean, std = np.array([(b.mean, b.std) for b in tokens.bins]).T
        np.testing.assert_allclose([bars.y, bars.low, bars.high], [mean, mean - std, mean + std])
        assert bars.colour == language.ACCENT


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_name_stands_at_its_own_token_and_on_its_own_side(sign):
    tokens = radius(sign=sign)
    axes = draw_token_radius({"helm": tokens}, LABELS).axes[0]
    words = [LABELS.index("␣" + name) for name in texts(axes)]
    assert len(words) <= 2 * language.NAMED
    near, far = word_examples(tokens, LABELS, language.NAMED)
    assert {words[0], words[-1]} <= {*near, *far}
    assert near[0] in words
    assert far[0] in words
    marked = [tuple(offsets[0]) for offsets, faces in dots(axes) if set(faces) == {BRANCHES[2]}]
    for text, word in zip(axes.texts, words, strict=True):
        place = tokens.counts[word], tokens.radius[word]
        assert text.xy == place
        assert place in marked
        below = word in near
        assert (text.get_position()[1] < 0, text.get_va()) == (below, "top" if below else "bottom")
    assert len(marked) == len(words)


def test_words_that_were_seldom_seen_are_not_named():
    tokens = radius()
    axes = draw_token_radius({"helm": tokens}, LABELS, seen=1000).axes[0]
    assert texts(axes)
    assert all(tokens.counts[LABELS.index("␣" + name)] >= 1000 for name in texts(axes))


def test_a_token_that_was_never_seen_is_not_drawn():
    counts = np.arange(SIZE)
    tokens = token_radius(torch.rand(SIZE, 1), Euclidean(), counts)
    axes = draw_token_radius({"helm": tokens}, LABELS).axes[0]
    assert dots(axes)[0][0][:, 0].tolist() == counts[1:].tolist()


@pytest.mark.parametrize("most", [SIZE - 1, SIZE])
def test_of_too_many_tokens_some_are_drawn_each_once(most, monkeypatch):
    monkeypatch.setattr(language, "DOTS", most)
    tokens = radius()
    shown = dots(draw_token_radius({"helm": tokens}, LABELS).axes[0])[0][0].tolist()
    assert len({tuple(place) for place in shown}) == len(shown) == most
    assert {tuple(place) for place in shown} <= set(zip(tokens.counts.tolist(), tokens.radius.tolist(), strict=True))


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
    drawn = axes.collections
    starts, ends = drawn[::2], drawn[1::2]
    heights = [0, 1, 2, 4, 5, 6]  # a band of three experts, a gap, another band
    colours = [BRANCHES[0], BRANCHES[1], language.INK] * 2  # the last of a layer is shared
    for marks, name in ((starts, "start"), (ends, "learned")):
        values = [c for layer in CURVATURES for c in getattr(layer, name).tolist()]
        np.testing.assert_allclose([d.get_offsets()[0] for d in marks], np.stack([values, heights], 1))
    assert [to_hex(d.get_facecolor()[0]) for d in starts] == [language.PAPER] * 6
    assert [to_hex(d.get_edgecolor()[0]) for d in starts] == colours
    assert [to_hex(d.get_facecolor()[0]) for d in ends] == colours
    corners = [len(d.get_paths()[0].vertices) for d in ends]
    assert [count < 8 for count in corners] == [False, False, True] * 2  # diamonds, not circles
    for line, layer_and_expert in zip(axes.lines, [(l, e) for l in (0, 1) for e in (0, 1, 2)], strict=True):
        layer, expert = layer_and_expert
        own = CURVATURES[layer]
        assert line.get_xdata() == pytest.approx([own.start[expert].item(), own.learned[expert].item()])
        assert list(line.get_ydata()) == [heights[3 * layer + expert]] * 2
        assert colour(line) == colours[3 * layer + expert]
    assert ticks(axes.yaxis) == {1.0: "layer 3", 5.0: "layer 8"}
    assert axes.get_ylim() == (7, -1)  # the first layer on top
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "curvature")
    assert axes.xaxis.get_major_formatter()(0.5, 0) == "-0.5"
    with pytest.raises(UserError, match="nothing to draw"):
        draw_curvatures([])


def test_load_in_units_of_the_fair_share():
    figure = draw_expert_load(LOAD, [1, 4])
    axes, bar = figure.axes
    times = [[0.4, 0.8, 1.2, 1.6], [1.0, 0.2, 1.8, 1.0]]
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array(), times)
    assert tuple(image.get_extent()) == (-0.5, 3.5, 1.5, -0.5)  # experts across, layers down
    written = {tuple(map(int, t.get_position())): t.get_text() for t in axes.texts}
    assert written == {(expert, row): f"{times[row][expert]:.2f}" for row in (0, 1) for expert in range(4)}
    assert ticks(axes.yaxis) == {0.0: "layer 1", 1.0: "layer 4"}
    assert (axes.get_xlabel(), bar.get_ylabel()) == ("expert", "times its fair share")
    assert [float(image.norm(value)) for value in (0, 1, 2)] == [0, 0.5, 1]  # the fair share is in the middle
    few, fair, many = (image.cmap(image.norm(value)) for value in (0, 1, 2))
    assert min(fair[:3]) > 0.9
    assert few[2] > few[0]  # violet for few
    assert many[0] > many[2]  # orange for many
    light = {t.get_text(): to_hex(t.get_color()) for t in axes.texts}
    assert (light["0.20"], light["1.00"], light["1.80"]) == (language.PAPER, language.INK, language.PAPER)
    crowded = expert_load(torch.ones(20, 64))
    assert not texts(draw_expert_load(crowded, range(20)).axes[0])


def test_rows_of_experts_are_as_high_for_many_layers_as_for_few():
    def height(layers):
        load = expert_load(torch.full((layers, 4), 5))
        return draw_expert_load(load, range(layers)).get_figheight()

    assert height(12) - height(8) == pytest.approx(height(8) - height(4)) == pytest.approx(4 * 0.36)


def test_every_head_is_a_dot_beside_its_layer():
    models = {"helm": DISTANCE, "twin": DISTANCE + 1}
    axes = draw_attention_distance(models, length=17).axes[0]
    colours = [BRANCHES[0], BRANCHES[SHADE]]
    for (shown, faces), (name, distance), own in zip(dots(axes), models.items(), colours, strict=True):
        shift = {"helm": -0.06, "twin": 0.06}[name]
        layers = np.repeat(np.arange(2), 3) + shift
        np.testing.assert_allclose(shown, np.stack([layers, distance.flatten()], 1))
        assert set(faces) == {own}
        line = named_lines(axes)[f"{name}, mean of heads"]
        np.testing.assert_allclose(line.get_xydata(), np.stack([np.arange(2) + shift, distance.mean(1)], 1))
        assert colour(line) == own
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--", ":"]
    even = named_lines(axes)["looking at everything alike"]
    assert list(even.get_ydata()) == [4, 4]  # (17 - 1)/4
    assert list(key(axes)) == ["helm, mean of heads", "twin, mean of heads", "looking at everything alike"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_ylim()[0]) == ("layer", "tokens back", 0)
    assert len(draw_attention_distance({"helm": DISTANCE}).axes[0].lines) == 1


def test_ricci_beside_its_noise():
    tokens, noise = ricci(), ricci(0.25, edges=30)
    axes = draw_ricci(tokens, noise).axes[0]
    edges = np.linspace(-1, 0.25, 41)
    outlines = dict(zip(key(axes), axes.patches, strict=True))
    assert list(outlines) == ["flat noise, mean -0.250", "tokens, mean -0.500"]
    for (name, outline), own, line in zip(outlines.items(), (noise, tokens), axes.lines, strict=True):
        shares = np.histogram(own.curvature, edges)[0] / len(own.curvature)
        steps = outline.get_xy()[1:81:2]  # the upper left corner of each bar
        np.testing.assert_allclose(steps, np.stack([edges[:-1], shares], 1), atol=1e-9)
        assert list(line.get_xdata()) == [own.mean] * 2
        expected = language.QUIET if name.startswith("flat") else language.ACCENT
        assert colour(line) == expected
        assert to_hex(outline.get_facecolor() if outline.get_fill() else outline.get_edgecolor()) == expected
        assert outline.get_fill() == name.startswith("flat")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Ollivier-Ricci curvature of an edge", "share of edges")
    alike = Ricci(np.zeros((3, 2), np.int64), np.full(3, -0.5), sampled=False)
    assert draw_ricci(alike, alike).axes[0].lines[0].get_xdata()[0] == -0.5


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

NAMES = ["token-radius", "expert-curvatures", "expert-load", "attention-distance", "ricci"]
SHOWN = {  # by what each is known
    "token-radius": lambda figure: figure.axes[0].get_xlabel() == "times seen in the text",
    "expert-curvatures": lambda figure: figure.axes[0].get_xlabel() == "curvature",
    "expert-load": lambda figure: figure.axes[0].get_xlabel() == "expert",
    "attention-distance": lambda figure: figure.axes[0].get_ylabel() == "tokens back",
    "ricci": lambda figure: figure.axes[0].get_ylabel() == "share of edges",
}


def assert_shown(images, captions, album):
    """Each picture stands over its own caption."""
    assert [image.caption for image in images] == list(captions.values())
    for name, image in zip(captions, images, strict=True):
        assert SHOWN[name](album[image.content])


def test_a_page_shows_what_is_inside(album):
    report = Report("demo")
    add_language(report, None, a_study())
    page = read_page(report.html())
    assert page.of("h2") == ["Inside helm"]
    assert_shown(page.of("img"), {name: caption for name, _, caption in pictures(a_study())}, album)


def test_pictures_are_of_the_study():
    drawn = {name: figure for name, figure, _ in pictures(a_study())}
    assert list(drawn) == NAMES
    assert all(SHOWN[name](figure) for name, figure in drawn.items())
    assert [axes.get_title("left").split(":")[0] for axes in drawn["token-radius"].axes] == ["helm", "twin"]
    assert list(key(drawn["attention-distance"].axes[0])) == [
        "helm, mean of heads",
        "twin, mean of heads",
        "looking at everything alike",
    ]
    assert drawn["attention-distance"].axes[0].lines[-1].get_ydata()[0] == 15 / 4
    assert list(key(drawn["ricci"].axes[0])) == ["flat noise, mean -0.400", "tokens, mean -0.500"]
    assert ticks(drawn["expert-load"].axes[0].yaxis) == {0.0: "layer 1", 1.0: "layer 2"}


def test_a_dense_model_has_fewer_pictures():
    assert [name for name, _, _ in pictures(a_study(mixture=False))] == ["token-radius", "attention-distance", "ricci"]


def test_captions_say_what_was_found():
    captions = {name: caption for name, _, caption in pictures(a_study())}
    assert "In helm frequent ones lie nearer the origin (rank correlation -1.00)" in captions["token-radius"]
    assert "here -0.100" in captions["ricci"]
    assert "Dead experts: 0." in captions["expert-load"]
    assert "in rows of 16" in captions["attention-distance"]
    other = TokenStudy(LABELS, {"helm": radius(sign=1)}, {"helm": stats()}, ricci(), ricci())
    assert "farther out, not nearer" in next(pictures(other))[2]


def test_a_study_as_a_page_or_a_folder(tmp_path, album):
    study = a_study()
    save_study(study, tmp_path / "tokens.html")
    page = read_page((tmp_path / "tokens.html").read_text(encoding="utf-8"))
    assert page.heading == "Inside helm"
    assert page.of("p")[0] == "60 tokens, 2 layers"
    assert page.of("table")[0].rows == study.rows()
    assert_shown(page.of("img"), {name: caption for name, _, caption in pictures(study)}, album)
    save_study(study, tmp_path / "folder")
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {
        "report.html",
        *(f"{name}.png" for name in NAMES),
    }
    for name in NAMES:
        assert SHOWN[name](album[(tmp_path / "folder" / f"{name}.png").read_bytes()])
    for out in ("tokens.html", "folder"):
        with pytest.raises(UserError, match="exists already"):
            require_page_place(tmp_path / out)
    save_study(a_study(mixture=False), tmp_path / "tokens.html", overwrite=True)
    assert len(read_page((tmp_path / "tokens.html").read_text(encoding="utf-8")).of("img")) == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(UserError, match=r"holds no report\.html"):
        save_study(study, tmp_path / "mine", overwrite=True)
