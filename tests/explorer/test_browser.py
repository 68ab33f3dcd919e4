"""The explorer in a real browser: each thing it does, done once by pointer, finger or keyboard.

Every test also says that the page reported no error, and asked nobody but its own server; an exported page, nobody.
"""

import csv
import io
import xml.etree.ElementTree as ET
from contextlib import ExitStack
from itertools import chain

import numpy as np
import pytest
import torch

from horosphere import explore
from horosphere.cli import main
from horosphere.data import Graph
from horosphere.explorer import Explorer, open_atlas
from horosphere.explorer.atlas import NEIGHBOURS, Atlas
from horosphere.geometry import Euclidean, Lorentz
from horosphere.train.vectors import Vectors
from tests.explorer.driven import PATIENCE, SOFTWARE, Driven, apart, between, browser_here, far, inked, middle, serving

playwright = pytest.importorskip("playwright.sync_api", reason="pages are driven by playwright")
PATH = browser_here()

L = Lorentz(1.0)
ACCENT = (179, 38, 30)  # of the focused point and its path
SCRIPT = "<script>alert(1)</script>"
LABELS = ["animal", SCRIPT, "=1+1", "+plus", "-minus", "@at", 'a "quote", a comma']
SVG = "{http://www.w3.org/2000/svg}"
HYPERBOLIC = ["principal plane", "neighbour map", "branches", "tree"]


def cloud(manifold, count, dim, std=1.0):
    return manifold.random(count, dim, std=std, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


# -- what is shown ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tree of forty nodes, embedded in five dimensions."""
    folder = tmp_path_factory.mktemp("tree")
    tree = folder / "tree.tsv"
    tree.write_text("".join(f"n{i}\tn{(i - 1) // 3}\n" for i in range(1, 40)))
    words = ["embed", str(tree), "--epochs", "40", "--dim", "5", "--negatives", "20", "--device", "cpu", "--quiet"]
    assert main([*words, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def trained(run):
    return open_atlas(run)


@pytest.fixture(scope="module")
def zoo():
    """Points with everything a point can have, and labels that mean no good."""
    count = 70
    labels = LABELS + [f"beast {i}" for i in range(len(LABELS), count)]
    shades = [np.full((24, 32, 3), (3 * i, 200, 40), np.uint8) for i in range(count)]
    columns = {
        "kind": [["fish", "bird", "", "cat"][i % 4] for i in range(count)],
        "weight": [None if i == 4 else i * 1.5 - 3 for i in range(count)],
        "note": [f"seen {i} times, {SCRIPT}" for i in range(count)],
    }
    vectors = Vectors(
        labels,
        cloud(L, count, 3, std=0.8),
        L,
        Graph(labels, [(i, (i - 1) // 3) for i in range(1, count)]),
        columns,
        lambda node: None if node == 3 else shades[node],
        torch.full((count,), 0.4),
    )
    return Atlas("zoo <b>&amp;</b>", vectors)


@pytest.fixture(scope="module")
def addresses(trained, zoo):
    """Of all that is served, by name."""
    twin = Vectors(trained.vectors.labels, cloud(Euclidean(), 40, 4), Euclidean(), trained.vectors.graph)
    globe = torch.nn.functional.normalize(cloud(Euclidean(), 60, 3), dim=1)
    shown = {
        "tree": Explorer([trained]),
        "zoo": Explorer([zoo]),
        "twins": Explorer([trained, Atlas("flat twin", twin)]),
        "strangers": Explorer([trained, zoo]),
        "flat": explore(cloud(Euclidean(), 500, 2), name="flat"),
        "sphere": explore(globe, edges=[(0, 1), (1, 2)], name="sphere"),
    }
    with ExitStack() as stack:
        yield {name: stack.enter_context(serving(explorer)) for name, explorer in shown.items()}


@pytest.fixture(scope="module")
def files(run, zoo, tmp_path_factory):
    """Addresses of exported pages."""
    folder = tmp_path_factory.mktemp("exported")
    assert main(["explore", str(run), "--export", str(folder / "tree.html"), "--quiet"]) == 0
    Explorer([zoo]).save(folder / "zoo.html", quiet=True)
    return {name: (folder / f"{name}.html").as_uri() for name in ("tree", "zoo")}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as run, run.chromium.launch(executable_path=PATH, args=SOFTWARE) as browser:
        yield browser


@pytest.fixture
def visit(browser):
    """visit(address): a page that has drawn its picture. In the end: no error was said, no stranger was asked."""
    contexts, asked, complaints = [], [], []

    def hear(kind, text):
        if kind in ("error", "warning") and "GL Driver Message" not in text:  # drivers talk of their speed
            complaints.append(text)

    def visit(address, width=1100, height=760, motion="reduce", scripts=(), **how):
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion=motion, service_workers="block", **how
        )
        context.set_default_timeout(1000 * PATIENCE)
        context.on("request", lambda request: asked.append((address, request.url)))
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
        context.on("console", lambda message: hear(message.type, message.text))
        contexts.append(context)
        page = context.new_page()
        page.goto(address)
        return Driven(page).seen()

    visit.complaints = complaints
    yield visit
    alerts = [page.locator(".alert:visible").all_inner_texts() for context in contexts for page in context.pages]
    for context in contexts:
        context.close()
    assert complaints == []
    assert [*chain(*alerts)] == []
    for address, url in asked:
        if not url.startswith(("data:", "blob:")):
            home = address.partition("?")[0].partition("#")[0]
            assert url.startswith(home) if home.startswith("http:") else url.partition("#")[0] == home


@pytest.fixture(params=["served", "exported"])
def both(request, addresses, files):
    """Addresses of the tree and the zoo, of a server or as files."""
    return addresses if request.param == "served" else files


# -- 1: moving --------------------------------------------------------------------------------------------------------


def test_a_drag_carries_the_grabbed_point_to_the_pointer(visit, both):
    page = visit(both["tree"])
    before = page.places()
    node = page.alone()[3]
    start = page.at(node)
    goal = between(start, middle(page.box()), 1.4)
    goal = (goal[0] + 60, goal[1] - 45)
    page.drag(start, between(start, goal, 0.3), between(start, goal, 0.8), goal)
    assert far(page.at(node), goal) < 0.5
    after = page.places()
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(apart(after), apart(before), rtol=1e-9, atol=1e-9)  # an isometry: all distances stay


def test_the_wheel_zooms_about_the_pointer(visit, addresses):
    page = visit(addresses["tree"])
    before = page.pixels()
    pointer = before[page.alone()[-1]].round()  # a wheel turns at whole pixels
    page.page.mouse.move(*pointer)
    page.page.mouse.wheel(0, -250)
    page.until("() => horosphere.get(0).camera[2] > 1.5")
    after, by = page.pixels(), page.ask("() => horosphere.get(0).camera[2]")
    np.testing.assert_allclose(after - pointer, by * (before - pointer), atol=1e-6)
    page.page.mouse.wheel(0, 250)
    page.until("() => horosphere.get(0).camera[2] < 1.001")
    np.testing.assert_allclose(page.pixels(), before, atol=1e-6)


def test_a_double_click_brings_a_point_to_the_middle_along_the_geodesic(visit, addresses):
    page = visit(addresses["tree"], motion="no-preference")
    before = page.places()
    node = page.alone()[-2]
    assert np.abs(before[node]) > 0.1
    page.page.mouse.dblclick(*page.at(node))
    page.until("(node) => Math.hypot(...Object.values(horosphere.panes[0].space.place(node))) < 1e-9", node)
    page.seen()
    assert far(page.at(node), middle(page.box())) < 1
    np.testing.assert_allclose(apart(page.places()), apart(before), rtol=1e-9, atol=1e-9)
    page.press("0")  # halfway there it lies on the same ray, at half the distance
    page.ask("(node) => horosphere.panes[0].space.centring(node)(0.5)", node)
    halfway = page.places()[node]
    assert np.angle(halfway / before[node]) == pytest.approx(0, abs=1e-9)
    assert np.arctanh(np.abs(halfway)) == pytest.approx(np.arctanh(np.abs(before[node])) / 2)


def test_rotate_and_reset(visit, addresses):
    page = visit(addresses["tree"])
    begin = page.places()
    x, y = middle(page.box())
    page.drag((x, y), (x + 120, y - 40))
    before = page.places()
    page.button("rotate left").click()
    np.testing.assert_allclose(page.places(), before * np.exp(1j * np.pi / 12), atol=1e-12)
    page.button("rotate right").click()
    np.testing.assert_allclose(page.places(), before, atol=1e-12)
    page.page.mouse.move(x, y)
    turned = page.ask("() => horosphere.get(0).moved")
    page.page.keyboard.down("Shift")
    page.page.mouse.wheel(0, 100)
    page.page.keyboard.up("Shift")
    page.until("(before) => horosphere.get(0).moved[1] !== before[1]", turned)
    np.testing.assert_allclose(page.places() / before, np.exp(0.25j), atol=1e-9)
    page.button("nearer").click()
    page.button("reset the view").click()
    np.testing.assert_array_equal(page.places(), begin)
    assert page.ask("() => horosphere.get(0).camera") == [0, 0, 1]


def test_a_walk_out_to_radius_twelve_and_back_loses_nothing(visit, addresses):
    page = visit(addresses["tree"])
    before = page.places()
    x, y = middle(page.box())
    reach = 0.75 * page.ask("() => horosphere.panes[0].camera.scale")
    ways = [((x, y), (x + reach * np.cos(angle), y + reach * np.sin(angle))) for angle in 0.15 * np.arange(7)]
    for way in ways:
        page.drag(*way)
    re, im = page.ask("() => horosphere.get(0).moved.slice(0, 2)")
    assert 2 * np.arccosh(np.hypot(re, im)) > 12  # how far from where it began
    for here, there in reversed(ways):
        page.drag(there, here)
    assert apart(page.places(), before).max() < 1e-6


# -- 2: charts and models ---------------------------------------------------------------------------------------------


def radius_of(page):
    """Of all points in the picture, by how far they are from the middle of an unmoved disk."""
    return 2 * np.arctanh(np.abs(page.places())) * page.ask("() => horosphere.panes[0].chart.unit")


def test_charts_keep_what_they_promise_and_say_what_is_lost(visit, both, trained):
    page = visit(both["tree"])
    names = page.find("select[aria-label=chart] option").all_inner_texts()
    assert names == [*HYPERBOLIC, "plane through two nodes…"]
    truth = trained.manifold.dist0(trained.points).numpy()
    pictures = []
    for name, chart in zip(HYPERBOLIC, trained.charts, strict=True):
        page.chart(name)
        pictures.append(page.places())
        note = page.until(
            "() => { const p = document.querySelector('.caption').textContent; return /%/.test(p) && p; }"
        )
        assert chart.note.lower() in note.lower()
        drawn = apart(pictures[-1])[:, trained._anchors] * chart.unit
        true = trained.manifold.dist(trained.points[:, None], trained.points[None, trained._anchors]).numpy()
        off = np.nanmean(np.abs(drawn / np.where(true > 0, true, np.nan) - 1), 1)
        page.until("(name) => !Number.isNaN(horosphere.views[0].off)")
        assert page.ask("() => horosphere.views[0].off") == pytest.approx(off.mean(), rel=1e-4)
        assert f"off by {100 * off.mean():.0f} %" in page.find(".caption").inner_text()
        if name in ("principal plane", "branches"):
            np.testing.assert_allclose(radius_of(page), truth, rtol=1e-9)
    edges = trained.vectors.graph.edges
    lengths = apart(pictures[-1][edges[:, 0]], pictures[-1][edges[:, 1]])
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-6)  # the tree's edges are of one length
    page.chooser("Colour").select_option("distortion of the picture")
    page.until("() => horosphere.views[0].look.colourBy.values.some((x) => x > 0)")
    np.testing.assert_allclose(page.ask("() => [...horosphere.views[0].look.colourBy.values]"), off, rtol=1e-3)


def test_the_map_stays_where_it_is_when_more_is_said_of_it(visit, addresses):
    """Distances are compared after the picture is seen: somebody may have taken hold of it."""
    page = visit(addresses["twins"])
    known = page.box()
    page.ask("() => { horosphere.views[0].off = NaN; horosphere.app.emit('chart'); }")
    assert "off by" not in page.find(".caption").first.inner_text()
    assert page.box() == known


def test_a_plane_through_two_nodes(visit, addresses, trained):
    page = visit(addresses["tree"])
    labels, (first, second) = trained.vectors.labels, page.alone()[1:3]
    page.find("select[aria-label=chart]").select_option(label="plane through two nodes…")
    assert "Pick the first node" in page.find(".toast").inner_text()
    page.click(first)
    page.click(second)
    page.until("() => horosphere.panes[0].chart.name.startsWith('plane through')")
    page.seen()
    assert (
        page.find("select[aria-label=chart] option:checked").inner_text()
        == f"plane through {labels[first]} and {labels[second]}"
    )
    np.testing.assert_allclose(radius_of(page), trained.manifold.dist0(trained.points).numpy(), rtol=1e-5)
    u, v = trained.manifold.lower(trained.points)[[first, second]]
    places = page.places()
    angle = abs(np.angle(places[second] / places[first]))
    assert np.cos(angle) == pytest.approx(float(torch.cosine_similarity(u, v, dim=0)), abs=1e-5)


def test_models_of_the_plane_by_one_key(visit, addresses):
    page = visit(addresses["tree"])
    disk = page.places()
    page.press("m")
    assert page.find("select[aria-label=model] option:checked").inner_text() == "Klein disk"
    np.testing.assert_allclose(page.places(), 2 * disk / (1 + np.abs(disk) ** 2), atol=1e-9)
    page.press("m")
    assert page.find("select[aria-label=model] option:checked").inner_text() == "half-plane"
    np.testing.assert_allclose(page.places(), 1j * (1 + disk) / (1 - disk), rtol=1e-6)
    node = page.alone()[2]
    start = page.at(node)
    page.drag(start, (start[0] + 40, start[1] + 70))
    assert far(page.at(node), (start[0] + 40, start[1] + 70)) < 0.5
    page.press("m")
    assert page.find("select[aria-label=model] option:checked").inner_text() == "Poincaré disk"
    np.testing.assert_allclose(apart(page.places()), apart(disk), rtol=1e-7, atol=1e-9)


# -- 3: edges ---------------------------------------------------------------------------------------------------------


def test_edges_are_drawn_and_can_be_left_out(visit, addresses):
    page = visit(addresses["tree"])
    page.press("l")
    drawn = inked(page.picture())
    page.press("e")
    assert page.button("edges").get_attribute("aria-pressed") == "false"
    assert inked(page.picture()) < drawn - 500
    page.press("e")
    assert inked(page.picture()) == drawn


def test_edges_are_geodesics(visit, addresses, trained):
    page = visit(addresses["tree"])
    text = page.saved(lambda: page.button("SVG").click())[0].decode()
    left, top, *_ = page.box()
    x, y = middle(page.box())
    scale = page.ask("() => horosphere.panes[0].camera.scale")
    paths = [path.get("d") for path in ET.fromstring(text).iter(f"{SVG}path") if path.get("stroke-width") is None]
    assert len(paths) == len(trained.vectors.graph.edges)
    bent = 0
    for path in paths:
        pixels = np.array([[float(n) for n in pair.split()] for pair in path.replace("M", "L").split("L")[1:]])
        z = (pixels[:, 0] + left - x - 1j * (pixels[:, 1] + top - y)) / scale
        if np.abs(z).max() > 0.85:
            continue  # a tenth of a pixel is much there
        first, last = np.full_like(z, z[0]), np.full_like(z, z[-1])
        detour = apart(first, z) + apart(z, last) - apart(z[:1], z[-1:])
        assert detour.max() < 0.02
        away = np.abs(((z - z[0]) * np.conj(z[-1] - z[0])).imag) / np.abs(z[-1] - z[0])
        bent = max(bent, scale * away.max())
    assert bent > 2  # pixels from the straight line


def test_the_path_to_the_root(visit, addresses):
    page = visit(addresses["tree"])
    page.press("e")
    page.press("l")
    page.focus("n0")
    root = inked(page.picture(), ACCENT)
    page.focus("n35")
    assert inked(page.picture(), ACCENT) > root + 100
    assert page.find("ol.path li").all_inner_texts() == ["n0", "n3", "n11"]
    page.find("ol.path button").nth(1).click()
    assert page.find(".cardhead h3").inner_text() == "n3"
    page.find(".pane canvas").first.focus()
    page.press("u")
    assert page.find(".cardhead h3").inner_text() == "n0"


def test_cones(visit, both):
    page = visit(both["zoo"])
    page.press("e")
    page.focus(1)
    region = page.picture()
    page.press("c")
    assert page.button("cones").get_attribute("aria-pressed") == "false"
    changed = np.abs(page.picture() - region).max(-1) > 8
    assert changed.sum() > 1_000
    # the middle of what has changed lies farther out than the point, in its direction
    rows, columns = changed.nonzero()
    left, top, width, height = page.box()
    outward = np.array([columns.mean() - width / 2, rows.mean() - height / 2])
    own = np.array(page.at(1)) - [left + width / 2, top + height / 2]
    assert own @ outward > 0.9 * np.linalg.norm(own) * np.linalg.norm(outward)
    assert np.linalg.norm(outward) > np.linalg.norm(own)


# -- 4: labels --------------------------------------------------------------------------------------------------------

WRITTEN = """() => { const pen = document.createElement('canvas').getContext('2d');
  pen.font = '12px system-ui, sans-serif';
  return horosphere.panes[0].written.map(({ node, text, x, y }) => [node, x, y, pen.measureText(text).width]); }"""


def test_labels_do_not_cover_each_other_and_more_come_as_one_zooms_in(visit, addresses):
    page = visit(addresses["flat"])
    labels = np.array(page.ask(WRITTEN))
    assert 10 < len(labels) < 200
    _, x, y, wide = labels.T
    beside = (x[:, None] >= x + wide) | (x >= (x + wide)[:, None])
    above = np.abs(y[:, None] - y) >= 12
    assert (beside | above | np.eye(len(labels), dtype=bool)).all()
    assert np.argmax(page.ask("() => [...horosphere.panes[0].importance]")) in labels[:, 0]
    node = page.alone()[0]
    page.page.mouse.move(*page.at(node))
    for nearness in (1.7, 2.9, 5):
        page.page.mouse.wheel(0, -300)
        page.until("(nearness) => horosphere.get(0).camera[2] > nearness", nearness)
    page.seen()
    here = page.ask("() => horosphere.panes[0].inView()")
    closer = {int(one[0]) for one in page.ask(WRITTEN)}
    before = set(labels[:, 0].astype(int)) & set(here)
    assert len(closer) > len(before) + 5
    with_labels = inked(page.picture())
    page.press("l")
    assert inked(page.picture()) < with_labels
    assert page.ask(WRITTEN) == []


# -- 5: finding -------------------------------------------------------------------------------------------------------


def test_search_as_one_types_and_fly_there(visit, both, trained):
    page = visit(both["tree"])
    page.press("/")
    page.type("n1")
    page.until("() => document.querySelectorAll('#hits li').length === 11")
    assert page.find("#hits li span").all_inner_texts()[:3] == ["n1", "n10", "n11"]
    page.press("ArrowDown")
    page.press("Enter")
    node = trained.vectors.labels.index("n10")
    page.until("(node) => horosphere.views[0].focus === node", node)
    page.seen()
    assert np.abs(page.places()[node]) < 1e-9
    assert page.find("#hits").is_hidden()
    page.press("/")
    page.find("#search").fill("n999")
    page.until("() => document.querySelector('#hits .note')?.textContent === 'nothing found'")
    page.press("Escape")
    assert (page.find("#search").input_value(), page.find("#hits").is_hidden()) == ("", True)


def test_neighbours_are_those_of_all_dimensions(visit, both, trained):
    page = visit(both["tree"])
    labels, edges = trained.vectors.labels, {frozenset(pair) for pair in trained.vectors.graph.edges.tolist()}
    node = page.alone()[0]
    page.click(node)
    for _ in range(2):
        truth = trained.manifold.dist(trained.points[node], trained.points)
        truth[node] = torch.inf
        order = truth.argsort(stable=True)[:NEIGHBOURS].tolist()
        page.until("(node) => horosphere.views[0].focus === node && horosphere.views[0].neighbours", node)
        listed = page.neighbours()
        assert [label for label, *_ in listed] == [labels[i] for i in order[:10]]
        assert [d for _, d, _ in listed] == [float(f"{truth[i]:.3g}") for i in order[:10]]
        assert [sign == "●" for *_, sign in listed] == [frozenset((node, i)) in edges for i in order[:10]]
        hits = sum(sign == "●" for *_, sign in listed)
        assert f"{hits} of 10 are linked in the graph" in page.find(".near").inner_text()
        page.button("more").click()
        assert len(page.neighbours()) == NEIGHBOURS
        exact = page.ask("() => horosphere.views[0].neighbours")
        assert exact["numbers"] == order
        assert exact["distances"] == pytest.approx(truth[order].tolist(), rel=1e-14)
        node = order[1]
        page.find(".neighbours .goto").nth(1).click()  # on to the next
    page.seen()
    assert np.abs(page.places()[node]) < 1e-9


# -- 6: selections, colours, filters ----------------------------------------------------------------------------------


def test_a_box_and_a_lasso_select_what_lies_inside(visit, addresses):
    page = visit(addresses["zoo"])
    pixels = page.pixels()
    x, y = middle(page.box())
    page.button("box").click()
    page.drag((x - 190.5, y - 120.5), (x, y), (x + 90.5, y + 160.5))
    inside = (np.abs(pixels - [x - 50, y + 20]) < [140.5, 140.5]).all(1).nonzero()[0].tolist()
    assert 5 < len(inside) < 65
    assert page.look()["selected"] == inside
    assert page.find("[aria-label=selection] strong").inner_text() == f"{len(inside)} points selected"
    assert page.find("[aria-label=selection] tbody tr").count() == min(50, len(inside))
    page.press("s")
    corners = np.array([[x - 210.5, y + 130.5], [x + 10.5, y - 240.5], [x + 240.5, y + 150.5]])
    way = [tuple(a + t * (b - a)) for a, b in zip(corners, np.roll(corners, -1, 0), strict=True) for t in (0, 0.5)]
    page.drag(*way, tuple(corners[0]))
    turns = [
        (b - a)[0] * (pixels - a)[:, 1] - (b - a)[1] * (pixels - a)[:, 0]
        for a, b in zip(corners, np.roll(corners, -1, 0), strict=True)
    ]
    triangle = (np.all(np.array(turns) > 0, 0) | np.all(np.array(turns) < 0, 0)).nonzero()[0].tolist()
    assert triangle != inside
    assert page.look()["selected"] == triangle
    page.press("Escape")
    assert page.look()["selected"] == []


def test_labels_are_text_in_page_table_drawing_and_spreadsheet(visit, both, zoo):
    page = visit(both["zoo"])
    assert page.find("h1").inner_text() == zoo.name
    page.button("in view").click()
    assert page.look()["selected"] == list(range(70))
    table = page.find("[aria-label=selection] tbody th").all_inner_texts()
    assert set(LABELS) <= set(table)
    content, name = page.saved(lambda: page.button("CSV").click())
    assert name == "zoo-b-amp-b--selection.csv"
    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(content.decode(), newline=""))}
    assert len(rows) == 70
    safe = ["animal", SCRIPT, "'=1+1", "'+plus", "'-minus", "'@at", 'a "quote", a comma']
    assert [label for label in safe if label not in rows] == []
    one = rows[SCRIPT]
    assert (one["kind"], one["weight"], one["note"], one["depth"]) == ("bird", "-1.5", f"seen 1 times, {SCRIPT}", "1")
    assert float(one["radius"]) == pytest.approx(float(L.dist0(zoo.points[1])), rel=1e-6)
    assert rows["'-minus"]["weight"] == ""  # it has none
    page.press("Escape")
    page.press("/")
    page.type("<scr")
    page.until("() => document.querySelectorAll('#hits li').length")
    assert page.find("#hits li span").first.inner_text() == SCRIPT
    page.press("Enter")
    page.until("() => horosphere.views[0].focus === 1 && horosphere.views[0].neighbours")
    page.seen()
    assert page.find(".cardhead h3").inner_text() == SCRIPT
    page.page.mouse.move(*page.at(1))
    page.until("() => !document.querySelector('.tooltip').hidden")
    assert page.find(".tooltip strong").inner_text() == SCRIPT
    assert f"seen 1 times, {SCRIPT}" in page.find(".tooltip").inner_text()
    drawing = page.saved(lambda: page.button("SVG").click())[0].decode()
    assert "<script" not in drawing
    assert SCRIPT in [text.text for text in ET.fromstring(drawing).iter(f"{SVG}text")]
    assert page.find("body script[type='text/plain'], body > script").count() == page.find("script").count()


def test_colours_legend_and_hidden_kinds(visit, addresses, zoo):
    page = visit(addresses["zoo"])
    page.chooser("Colour").select_option("kind")
    page.until("() => document.querySelectorAll('.legend li').length === 4")
    assert sorted(page.find(".legend .name").all_inner_texts()) == ["bird", "cat", "fish", "none"]
    colours = np.array(page.ask("() => { horosphere.timed(0); return [...horosphere.views[0].look.colours]; }"))
    kinds = colours.reshape(-1, 4)
    assert len({tuple(row) for row in kinds}) == 4
    assert all(tuple(kinds[i]) == tuple(kinds[i % 4]) for i in range(70))
    bird = page.find(".legend button", has_text="bird")
    bird.click()
    assert page.find(".legend button", has_text="bird").get_attribute("aria-pressed") == "false"
    page.seen()
    assert page.look()["shown"] == [i for i in range(70) if i % 4 != 1]
    assert "Filtered by kind." in page.find(".filters").inner_text()
    page.find(".filters button").click()
    page.seen()
    assert len(page.look()["shown"]) == 70


def test_ranges_typed_and_drawn_and_sizes(visit, addresses, zoo):
    page = visit(addresses["zoo"])
    page.chooser("Colour").select_option("weight")
    page.page.get_by_label("least weight").fill("30")
    page.press("Tab")
    page.type("60")
    page.press("Enter")
    page.seen()
    assert page.look()["shown"] == [i for i in range(70) if 30 <= 1.5 * i - 3 <= 60]
    page.find("[aria-label=colours] .ends button").click()
    histogram = page.page.get_by_label("histogram of radius")
    histogram.scroll_into_view_if_needed()
    all_bars = histogram.evaluate("(canvas) => canvas.toDataURL()")
    box = histogram.bounding_box()
    y = box["y"] + box["height"] / 2
    page.drag((box["x"] + 1, y), (box["x"] + 0.3 * box["width"], y), (box["x"] + 0.6 * box["width"], y))
    page.seen()
    radius = L.dist0(zoo.points).numpy()
    least, most = radius.min(), radius.max()
    cut = least + 0.6 * (most - least)
    sure = np.abs(radius - cut) > 0.02 * (most - least)
    shown = np.isin(np.arange(70), page.look()["shown"])
    low = least + (most - least) / box["width"]
    assert (shown == ((radius <= cut) & (radius >= low)))[sure & (np.abs(radius - low) > 0.02)].all()
    page.find("[aria-label=radius] .ends button").click()
    page.seen()
    page.ask("() => horosphere.app.select(horosphere.views[0], [1, 2, 3])")
    page.until(
        "(before) => document.querySelector('[aria-label=\"histogram of radius\"]').toDataURL() !== before", all_bars
    )
    page.chooser("Size").select_option("weight")
    page.seen()
    widths = np.array(page.ask("() => [...horosphere.views[0].look.widths]"))
    assert (np.diff(np.delete(widths, 4)) > 0).all()
    assert widths[4] == widths[0]  # a point without a weight is as small as the lightest


# -- 7: pictures ------------------------------------------------------------------------------------------------------


def test_thumbnails_where_one_points_and_of_what_is_selected(visit, both):
    page = visit(both["zoo"])
    node = next(node for node in page.alone() if node not in (3, 0))
    page.page.mouse.move(*page.at(node))
    shade = """(where) => { const image = document.querySelector(where); if (!image?.naturalWidth) return null;
      const pen = document.createElement('canvas').getContext('2d'); pen.drawImage(image, 0, 0);
      return [...pen.getImageData(5, 5, 1, 1).data.slice(0, 3)]; }"""
    assert page.until(shade, ".tooltip img") == pytest.approx([3 * node, 200, 40], abs=6)
    page.click(node)
    assert page.until(shade, ".cardhead img") == pytest.approx([3 * node, 200, 40], abs=6)
    page.ask("() => horosphere.app.select(horosphere.views[0], [3, 8])")
    page.until("() => document.querySelectorAll('.pictures img:not([hidden])').length === 1")  # the other has none
    assert page.find(".pictures button").count() == 2
    page.find(".pictures button", has=page.find("img:visible")).click()
    assert page.look()["focus"] == 8


# -- 8: flat and round ------------------------------------------------------------------------------------------------


def test_a_plane_is_moved_and_zoomed(visit, addresses):
    page = visit(addresses["flat"])
    assert page.find("select[aria-label=model]").is_hidden()
    before = page.pixels()
    start = page.at(page.alone()[0])
    page.drag(start, (start[0] + 70, start[1] - 40))
    np.testing.assert_allclose(page.pixels() - before, np.tile([70, -40], (500, 1)), atol=0.5)
    page.press("+")
    assert page.ask("() => horosphere.get(0).camera[2]") == pytest.approx(1.25)


def test_a_sphere_is_turned(visit, addresses):
    page = visit(addresses["sphere"])
    before = page.places()
    assert np.isnan(before).any()  # some lie behind
    start = middle(page.box())
    reach = page.ask("() => horosphere.panes[0].camera.scale")
    page.drag(start, (start[0] + 0.2 * reach, start[1]), (start[0] + 0.5 * reach, start[1]))
    turned = page.ask("() => [...horosphere.panes[0].space.view]")
    assert 2 * np.arccos(abs(turned[0])) == pytest.approx(np.pi / 6, abs=0.01)  # arcsin 0.5
    node = page.alone()[0]
    start = page.at(node)
    goal = between(start, middle(page.box()), 1.3)
    page.drag(start, goal)
    assert far(page.at(node), goal) < 0.5
    page.press("Escape")
    page.page.mouse.dblclick(*page.at(node))
    page.until("(node) => Math.hypot(...Object.values(horosphere.panes[0].space.place(node))) < 1e-9", node)


# -- 9: links, files, keys, fingers, themes ---------------------------------------------------------------------------

STATE = """() => { const { app, views } = horosphere; const { look, pane } = views[0];
  const { showsEdges, showsLabels } = pane;
  return { chart: pane.chart.name, model: pane.space.model, ...horosphere.get(0), showsEdges, showsLabels,
    colour: look.colourBy.name, size: look.sizeBy.name, filters: look.state(), focus: views[0].focus,
    selected: [...look.selected].sort((a, b) => a - b), query: app.query, theme: app.theme,
    box: document.getElementById('search').value, dark: document.documentElement.dataset.theme }; }"""


def test_a_link_shows_the_same_picture(visit, both):
    page = visit(both["zoo"])
    page.press("/")
    page.type("beast 1")
    page.press("Escape")
    page.press("/")
    page.type("beast 2")
    page.press("Enter")
    page.until("() => horosphere.views[0].focus !== null && horosphere.views[0].neighbours")
    page.chart("branches")
    page.find("select[aria-label=model]").select_option("Klein disk")
    page.find("select[aria-label=chart]").evaluate("(select) => select.blur()")
    x, y = middle(page.box())
    page.drag((x, y), (x - 111, y + 73))
    page.page.mouse.wheel(0, -200)
    page.until("() => horosphere.get(0).camera[2] > 1.2")
    page.chooser("Colour").select_option("weight")
    page.chooser("Size").select_option("depth")
    page.page.get_by_label("least weight").fill("7")
    page.press("Tab")
    page.button("in view").click()
    page.button("edges").click()
    page.button("light or dark").click()
    page.seen()
    state, places = page.ask(STATE), page.places()
    assert len(state["selected"]) > 3
    page.until("() => location.hash.includes('theme=dark') && location.hash.includes('without=e')")
    address = page.page.url
    again = visit(address)
    assert again.ask(STATE) == state
    np.testing.assert_array_equal(again.places(), places)
    page.page.mouse.move(5, 5)
    again.page.mouse.move(5, 5)
    assert (np.abs(page.picture() - again.picture()).max(-1) > 40).mean() < 0.002
    page.button("Link").click()
    page.until("() => document.querySelector('.toast').textContent.startsWith('The link is')")
    again.page.goto(both["zoo"] + "#0.chart=no%20such&0.moved=1,x&0.focus=99999&0.filters=%5B&0.plane=1,1e9&theme=pink")
    again.seen()
    assert again.ask("() => [horosphere.panes[0].chart.name, horosphere.views[0].focus]") == ["principal plane", None]


def test_pictures_to_keep(visit, both, trained):
    Image = pytest.importorskip("PIL.Image", reason="pictures are read by pillow")
    page = visit(both["tree"])
    page.focus(20)
    seen = page.picture()
    content, name = page.saved(lambda: page.button("PNG").click())
    assert name.endswith("-Poincaré-disk.png")
    kept = Image.open(io.BytesIO(content))
    height, width = seen.shape[:2]
    canvas = page.ask("() => [horosphere.panes[0].canvas.width, horosphere.panes[0].canvas.height]")
    assert (kept.width, kept.height) == (canvas[0], canvas[1] + 44)  # title and note stand below the map
    paper = Image.new("RGBA", kept.size, "white")
    paper.alpha_composite(kept.convert("RGBA"))
    found = np.array(paper.convert("RGB")).astype(int)[:height, :width]
    assert inked(found) == pytest.approx(inked(seen[: found.shape[0], : found.shape[1]]), rel=0.05)
    assert inked(found, ACCENT) > 50
    assert inked(np.array(paper.convert("RGB")).astype(int)[canvas[1] :]) > 300
    drawing = ET.fromstring(page.saved(lambda: page.button("SVG").click())[0].decode())
    filled = [one for one in drawing.iter(f"{SVG}circle") if one.get("fill") != "none"]
    left, top, *_ = page.box()
    wanted = sorted((page.pixels() - [left, top]).round(1).tolist())
    centres = sorted([float(one.get("cx")), float(one.get("cy"))] for one in filled)
    np.testing.assert_allclose(centres, wanted, atol=0.11)
    assert trained.charts[0].note.lower() in drawing.find(f"{SVG}desc").text.lower()


def focused(page):
    return page.ask(
        """() => { const { activeElement: one } = document;
        return one.getAttribute('aria-label') || one.id || one.textContent; }"""
    )


def tab_to(page, name, most=150, backward=False):
    for _ in range(most):
        if focused(page) == name:
            return
        page.press("Shift+Tab" if backward else "Tab")
    pytest.fail(f"no way by keyboard to {name}")


def test_all_by_keyboard_alone(visit, both):
    page = visit(both["zoo"])
    page.press("/")
    page.type("beast 12")
    page.until("() => document.querySelectorAll('#hits li').length")
    page.press("Enter")
    page.until("() => horosphere.views[0].focus === 12 && horosphere.views[0].neighbours")
    page.seen()
    first = page.ask("() => horosphere.views[0].neighbours.numbers[0]")
    page.press("N")
    assert page.look()["focus"] == first
    page.until("() => horosphere.views[0].neighbours")
    page.press("P")
    page.press("n")
    page.press("p")
    at = page.pixels()
    page.press("ArrowRight")
    assert (page.pixels() != at).any()
    page.press("Shift+ArrowLeft")
    page.press("+")
    assert page.ask("() => horosphere.get(0).camera[2]") == pytest.approx(1.25)
    page.press("0")
    assert page.ask("() => horosphere.get(0).camera") == [0, 0, 1]
    page.press("Enter")
    page.seen()
    node = page.look()["focus"]
    assert np.abs(page.places()[node]) < 1e-9
    page.press("x")
    assert page.look()["selected"] == [node]
    tab_to(page, "chart", backward=True)
    page.press("ArrowDown")
    page.until("() => horosphere.panes[0].chart.name === 'neighbour map'")
    tab_to(page, "neighbours")
    page.press("Enter")
    assert len(page.look()["selected"]) == NEIGHBOURS + 1
    tab_to(page, "CSV")
    rows = page.saved(lambda: page.press("Enter"))[0].decode().splitlines()
    assert len(rows) == NEIGHBOURS + 2
    tab_to(page, "least radius")
    page.type("1")
    page.press("Tab")
    page.until("() => horosphere.views[0].look.filters().length === 1")
    tab_to(page, "SVG", backward=True)
    assert page.saved(lambda: page.press("Enter"))[0].startswith(b"<svg")
    page.press("?")
    assert page.find("dialog.help").is_visible()
    page.press("Escape")
    assert page.find("dialog.help").is_hidden()
    for _ in range(4):
        page.press("Escape")
    assert page.look()["focus"] is None
    assert page.look()["selected"] == []


def test_a_plane_through_two_nodes_by_keyboard(visit, addresses):
    page = visit(addresses["tree"])
    page.press("n")
    tab_to(page, "chart")
    page.press("End")
    page.until("() => horosphere.app.planning")
    tab_to(page, page.find(".pane canvas").first.get_attribute("aria-label"))
    page.press("n")
    assert page.until("() => horosphere.panes[0].chart.name.startsWith('plane through')")


def test_fingers(visit, addresses):
    page = visit(addresses["tree"], has_touch=True)
    line = page.page.context.new_cdp_session(page.page)

    def touch(kind, *points):
        spots = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        line.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": spots})

    before = page.places()
    node = page.alone()[2]
    start = page.at(node)
    goal = (start[0] - 50, start[1] + 60)
    touch("touchStart", start)
    touch("touchMove", between(start, goal))
    touch("touchMove", goal)
    touch("touchEnd")
    page.until("() => horosphere.get(0).moved[2] !== 0")
    page.seen()
    assert far(page.at(node), goal) < 1
    np.testing.assert_allclose(apart(page.places()), apart(before), rtol=1e-9, atol=1e-9)
    page.ask("() => horosphere.panes[0].reset()")
    x, y = middle(page.box())
    touch("touchStart", (x - 40, y), (x + 40, y))
    for half in (50, 65, 80):
        touch("touchMove", (x - half, y), (x + half, y))
    touch("touchEnd")
    page.until("() => horosphere.get(0).camera[2] > 1.9")
    assert page.ask("() => horosphere.get(0).camera[2]") == pytest.approx(2, rel=0.02)
    page.seen()
    node = page.alone()[0]
    touch("touchStart", page.at(node))
    touch("touchEnd")
    page.until("(node) => horosphere.views[0].focus === node", node)


FAINT = """() => { const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const read = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const paper = (one) => { for (; one; one = one.parentElement) {
      const colour = read(getComputedStyle(one).backgroundColor); if ((colour[3] ?? 1) === 1) return colour; } };
  const out = []; const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) { const one = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || one.closest('script, :disabled, .live')) continue;
    if (!one.checkVisibility()) continue;
    const [a, b] = [read(getComputedStyle(one).color), paper(one)].map(light).sort();
    if ((b + 0.05) / (a + 0.05) < 4.5) out.push(walker.currentNode.textContent); }
  return out; }"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_light_and_dark_are_legible(visit, addresses, theme):
    page = visit(addresses["zoo"], color_scheme=theme)
    page.ask("() => horosphere.app.focus(horosphere.views[0], 5)")
    page.ask("() => horosphere.app.select(horosphere.views[0], [4, 5, 6])")
    page.until("() => horosphere.views[0].neighbours")
    paper = {"light": (255, 255, 255), "dark": (18, 22, 29)}
    assert tuple(page.picture()[3, 3]) == paper[theme]
    assert page.ask(FAINT) == []
    other = {"light": "dark", "dark": "light"}[theme]
    page.button("light or dark").click()
    assert tuple(page.picture()[3, 3]) == paper[other]
    page.until("(other) => location.hash.includes(`theme=${other}`)", other)
    page.button("light or dark").click()
    assert page.ask("() => horosphere.app.theme") == "system"


@pytest.mark.parametrize("name", ["zoo", "strangers"])
def test_a_narrow_window_needs_no_scrolling_sideways(visit, addresses, name):
    page = visit(addresses[name], width=320, height=640)
    page.focus(1, -1)
    page.ask("() => horosphere.app.select(horosphere.views.at(-1), [1, 2, 3, 4, 5, 6])")
    page.until("() => horosphere.views.at(-1).neighbours")
    assert page.ask("() => document.documentElement.scrollWidth") == 320
    outside = """() => [...document.querySelectorAll('button, select, input, p, h2, h3, canvas')].filter((one) =>
      one.checkVisibility() && !one.closest('.live, .table') && one.getBoundingClientRect().right > 320.5)
      .map((one) => one.outerHTML.slice(0, 80))"""
    assert page.ask(outside) == []
    assert page.box()[3] >= 280


# -- two at once ------------------------------------------------------------------------------------------------------


def test_two_embeddings_are_linked(visit, addresses):
    page = visit(addresses["twins"])
    node = page.alone()[0]
    page.click(node)
    assert [page.look(0)["focus"], page.look(1)["focus"]] == [node, node]
    page.button("box").click()
    left, top, width, height = page.box(1)
    page.drag((left + 0.3 * width, top + 0.3 * height), (left + 0.8 * width, top + 0.9 * height))
    chosen = page.look(1)["selected"]
    assert 0 < len(chosen) < 40
    assert page.look(0)["selected"] == chosen
    assert page.ask("() => horosphere.app.active") == 1  # the panel is about the one that was touched
    page.press("Escape")
    page.press("Escape")
    assert page.look(0)["selected"] == page.look(1)["selected"] == []
    page.find(".switch button").first.click()
    page.until("() => horosphere.app.active === 0")


def test_embeddings_of_other_things_say_so_in_one_line(visit, addresses):
    page = visit(addresses["strangers"])
    page.click(page.alone()[0])
    page.until("() => horosphere.views[0].neighbours")
    label = page.find(".cardhead h3").inner_text()
    said = page.find("[aria-label='focused point'] .note").all_inner_texts()
    assert said == [f"zoo <b>&amp;</b> has no “{label}”."]
    assert page.look(1)["focus"] is None
    page.button("in view").click()
    assert page.look(1)["selected"] == []
    assert page.find("[aria-label=selection] .note").all_inner_texts() == [
        "None of the selection is in zoo <b>&amp;</b>."
    ]


# -- 10, and what is safe ---------------------------------------------------------------------------------------------


def test_more_points_than_are_drawn_while_one_moves(visit):
    """With edges: drawn, moved, searched. Nothing here is timed."""
    count = 15_000
    labels = [f"noun {i}" for i in range(count)]
    graph = np.stack([np.arange(1, count), np.arange(count - 1) // 5], 1)
    with serving(explore(cloud(L, count, 2, std=3.0), L, labels, graph, name="nouns")) as address:
        page = visit(address)
        arrays = page.ask("() => performance.getEntriesByType('resource').map(({ name }) => name)")
        assert sum("/arrays/0/" in name for name in arrays) == len(arrays) - 1  # all but one in binary
        start = middle(page.box())
        before = page.places()[:50]
        page.drag(start, (start[0] + 50, start[1] + 20), (start[0] + 90, start[1] - 30))
        page.seen()
        np.testing.assert_allclose(apart(page.places()[:50]), apart(before), rtol=1e-6, atol=1e-9)
        page.press("/")
        page.type("noun 12777")
        page.press("Enter")
        page.until("() => horosphere.views[0].focus === 12777 && horosphere.views[0].neighbours")


def test_a_page_of_one_point(visit):
    with serving(explore(torch.zeros(1, 2), L, ["only"])) as address:
        page = visit(address)
        page.click(0)
        assert "There is no other point." in page.find("[aria-label='focused point']").inner_text()


def test_a_token_is_carried_along(visit, trained):
    with serving(Explorer([trained]), token="secret") as address:
        page = visit(address)
        page.focus(0)
        assert page.look()["focus"] == 0


def test_an_exported_page_may_ask_nobody(visit, files, addresses):
    page = visit(files["tree"])
    policy = page.find("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert visit.complaints == []
    asking = "(address) => fetch(address, { mode: 'no-cors' }).then(() => 'answered', () => 'refused')"
    assert page.ask(asking, addresses["tree"]) == "refused"
    assert all("Content Security Policy" in complaint for complaint in visit.complaints)
    visit.complaints.clear()
