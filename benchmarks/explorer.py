"""The explorer in a browser: frames beside hyper-scatter's, edges, first picture, memory, the server's side, export.

    python benchmarks/explorer.py                                    # points on the disk, a random tree
    python benchmarks/explorer.py --edges nouns.tsv.gz --run runs/nouns --shots pictures

Needs playwright, a Chromium, and npm: it fetches hyper-scatter 0.4.0 (MIT) into a temporary folder. --peer FOLDER takes
an unpacked one instead. All is drawn by software (SwiftShader), so times say how much work a frame is, not how fast a
graphics card does it.

A frame is: move by one step of a drag, draw all points, read one pixel back, which waits until the picture is done.
Both draw the same points on a canvas of the same size, at the same size of the disk, along the same path of the
pointer. Our points shrink towards the rim; theirs have one size, chosen so that both cover as many pixels. They take
turns in one browser, and numbers are medians over all frames of all rounds; the least stands beside them, because other
work on a machine only adds. "In use" is a drag by mouse, in which our page draws as much as this machine manages.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from horosphere.data import Graph
from horosphere.data.read import read_graph
from horosphere.errors import UserError
from horosphere.explorer import Explorer, open_atlas
from horosphere.explorer.atlas import Atlas
from horosphere.explorer.charts import sarkar
from horosphere.explorer.points import read_points
from horosphere.geometry import Lorentz
from horosphere.tables import table_lines
from horosphere.train.vectors import Vectors

COUNTS = (1_000, 10_000, 82_115, 1_000_000)
NOUNS, MANY = 82_115, 1_000_000
WINDOW: ViewportSize = {"width": 1280, "height": 800}
FLAGS = (
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--enable-precise-memory-info",
)
PEER, MIB = "hyper-scatter@0.4.0", 2**20
FARTHEST = 5.0  # radius of points on the disk: theirs are fp32 in the ball, and all are seen
ROUNDS, FRAMES, SWAY = 6, 4, 24  # frames in a turn; steps of the drag to both sides and back
MOVES, PICTURES, ASKED = 30, 3, 20  # of the mouse; first pictures; neighbours asked for

# The pointer goes from the middle of the canvas to both sides and back, so that both have the same views: on other ways
# theirs keeps the map upright, and ours turns it as parallel transport does
PATH = """
const path = (width, height, k) => {
  const away = 0.3 * Math.min(width, height) * Math.sin((2 * Math.PI * k) / SWAY);
  return { x: width / 2 + away, y: height / 2 };
};
""".replace("SWAY", str(SWAY))

OURS = f"""([from, frames]) => {{ {PATH}
  const pane = horosphere.panes[0];
  const {{ clientWidth: width, clientHeight: height }} = pane.canvas;
  const taken = [];
  for (let k = from; k < from + frames; k++) {{
    const begun = performance.now();
    pane.grab(path(width, height, k), path(width, height, k + 1));
    pane.draw();
    const handed = performance.now();
    pane.finish();
    taken.push([performance.now() - begun, handed - begun]);
  }}
  return taken;
}}"""

THEIRS = f"""([from, frames]) => {{ {PATH}
  const {{ plot, gl, width, height }} = peer;
  const taken = [];
  const none = {{ shift: false, ctrl: false, alt: false, meta: false }};
  for (let k = from; k < from + frames; k++) {{
    const [before, now] = [path(width, height, k), path(width, height, k + 1)];
    const begun = performance.now();
    plot.startPan(before.x, before.y);
    plot.pan(now.x - before.x, now.y - before.y, none);
    plot.render();
    const handed = performance.now();
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    taken.push([performance.now() - begun, handed - begun]);
  }}
  return taken;
}}"""

# disks of one size, and the points alone
ALONE = """() => {
  const pane = horosphere.panes[0];
  pane.showsEdges = pane.showsLabels = false;
  const { clientWidth: width, clientHeight: height } = pane.canvas;
  pane.camera = { x: 0, y: 0, scale: 0.45 * Math.min(width, height) }; // as theirs
  pane.draw();
  const { frame } = pane.space;
  let area = 0;
  pane.look.widths.forEach((wide, i) => { // as renderer.ts: POINTS
    const share = (2 * frame[3 * i + 2]) / (1 + frame[3 * i + 2]);
    area += (Math.max(1.5, wide * (0.45 + 1.05 * share)) + 1) ** 2;
  });
  return { width, height, radius: Math.sqrt(area / pane.atlas.count) / 2 };
}"""

PEER_PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body style="margin:0">
<canvas id="plot" style="display:block"></canvas><script type="module">
import { createDatasetFromColumns, createScatterPlot } from "./package/dist-lib/index.js";
window.show = async (name, width, height, pointRadius) => {
  const both = new Float32Array(await (await fetch(name)).arrayBuffer());
  const n = both.length / 2;
  const canvas = document.getElementById("plot");
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const plot = createScatterPlot(canvas, {
    geometry: "poincare", width, height, devicePixelRatio: 1, pointRadius, backgroundColor: "#ffffff",
    poincareDiskFillColor: "#ffffff", colors: ["#0072b2"],
    dataset: createDatasetFromColumns("poincare", both.slice(0, n), both.slice(n), new Uint16Array(n)),
  });
  plot.render();
  window.peer = { plot, gl: canvas.getContext("webgl2"), width, height };
};
window.ready = true;
</script></body>"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=Path, help="a tree, as `horosphere embed` reads it (default: a random one)")
    parser.add_argument("--run", type=Path, help="a run to open and to export, too")
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--peer", type=Path, help="a folder with an unpacked hyper-scatter")
    parser.add_argument("--shots", type=Path, help="keep pictures of what was measured in this folder")
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--parts", nargs="*", choices=("frames", "edges", "pages", "server"), default=[])
    args = parser.parse_args()
    if not args.browser:
        raise SystemExit("no Chromium was found; name one with --browser")
    torch.set_num_threads(1)
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the start")
    parts = args.parts or ["frames", "edges", "pages", "server"]
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            PARTS[part](args, Path(folder))
            print(f"load {os.getloadavg()[0]:.2f}", flush=True)


# -- what is shown ----------------------------------------------------------------------------------------------------


def on_disk(count: int, dim: int = 2, seed: int = 0) -> torch.Tensor:
    """Points of the hyperboloid in random directions, at radii up to FARTHEST."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    radii = FARTHEST * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    return Lorentz().lift(radii * directions / directions.norm(dim=1, keepdim=True))


def points_alone(count: int, dim: int = 2) -> Atlas:
    return Atlas("points", Vectors([str(i) for i in range(count)], on_disk(count, dim), Lorentz()))


def tree(edges: Path | None) -> Atlas:
    """By Sarkar's construction; a random recursive tree where no file is given."""
    if edges:
        graph = read_graph(edges)
    else:
        parent = (np.random.default_rng(0).random(NOUNS - 1) * np.arange(1, NOUNS)).astype(int)
        graph = Graph([str(i) for i in range(NOUNS)], np.stack([np.arange(1, NOUNS), parent], 1))
    return Atlas("tree", Vectors(graph.labels, torch.from_numpy(sarkar(graph, 1.5)), Lorentz(), graph))


# -- browser ----------------------------------------------------------------------------------------------------------


@contextmanager
def browsing(executable: str) -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def served(server: Any) -> Iterator[Any]:
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def new_page(browser: Browser) -> Page:
    page = browser.new_page(viewport=WINDOW)
    page.set_default_timeout(300_000)
    page.on("console", lambda message: print(f"    {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: print(f"    {error}"))
    return page


def opened(browser: Browser, address: str) -> tuple[Page, dict[str, float]]:
    """Our page, and milliseconds from its beginning until it had its data, and from there until its first picture."""
    page = new_page(browser)
    page.goto(address)
    while not page.evaluate("performance.getEntriesByName('picture').length"):  # its policy lets nothing wait inside
        if alert := page.locator(".alert:visible").all_inner_texts():
            raise SystemExit(f"the page says: {alert[0]}")
        page.wait_for_timeout(20)
    at = {name: page.evaluate(f"performance.getEntriesByName('{name}')[0].startTime") for name in ("data", "picture")}
    return page, {"data": at["data"], "picture": at["picture"] - at["data"]}


def settle(page: Page) -> None:
    """Until everything is drawn that is drawn at rest."""
    page.wait_for_timeout(600)
    page.evaluate("horosphere.panes.forEach((pane) => pane.finish())")
    page.wait_for_timeout(200)


def dragged(page: Page) -> dict[str, float]:
    """A drag by mouse: the median of frames as the page draws them then, and how many vertices it allows itself."""
    box = page.locator("main canvas").first.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.evaluate("horosphere.panes[0].effort.frames.length = 0")
    page.mouse.move(*middle)
    page.mouse.down()
    begin = time.perf_counter()
    for k in range(1, MOVES + 1):
        page.mouse.move(middle[0] + 4 * k, middle[1] + 2 * k)
    wall = time.perf_counter() - begin
    page.mouse.up()
    frames = page.evaluate("horosphere.frames(0)")
    return {"ms": statistics.median(frames), "wall": wall, "most": page.evaluate("horosphere.panes[0].effort.moving")}


# -- frames beside hyper-scatter --------------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@dataclass
class Taken:
    """Milliseconds of frames: all, and until the last command was given to the card."""

    whole: list[float] = field(default_factory=list)
    handed: list[float] = field(default_factory=list)

    def add(self, frames: list[list[float]]) -> None:
        self.whole += [frame[0] for frame in frames]
        self.handed += [frame[1] for frame in frames]

    @property
    def ms(self) -> float:
        return statistics.median(self.whole)

    @property
    def least(self) -> float:
        return min(self.whole)


def fetched(folder: Path, given: Path | None) -> None:
    """hyper-scatter as `package` below the folder."""
    if given:
        shutil.copytree(given, folder / "package")
        return
    try:
        subprocess.run(["npm", "pack", "--silent", PEER], cwd=folder, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "") or error
        raise SystemExit(f"{PEER} could not be fetched ({why}); give --peer") from None
    [archive] = folder.glob("hyper-scatter-*.tgz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")


def print_frames(args: argparse.Namespace, folder: Path) -> None:
    fetched(folder, args.peer)
    (folder / "peer.html").write_text(PEER_PAGE)
    with served(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))) as files:
        address = f"http://127.0.0.1:{files.server_address[1]}"
        rows = [beside(args, folder, count, address) for count in args.counts]
    print("\npoints alone in the Poincaré disk, all drawn, ms of a frame; (): the least")
    heads = ["points", "ours", "hyper-scatter", "ours/theirs", "of the least", "JavaScript", "in use", "drawn in use"]
    print(*table_lines(heads, rows), sep="\n")


def beside(args: argparse.Namespace, folder: Path, count: int, files: str) -> list[str]:
    atlas = points_alone(count)
    x = np.frombuffer(atlas.array("chart-0") or b"").reshape(-1, 2)
    ball = x / (1 + np.sqrt(1 + np.square(x).sum(1, keepdims=True)))
    ball.T.astype("<f4").tofile(folder / f"{count}.bin")
    taken = {"ours": Taken(), "theirs": Taken()}
    with browsing(args.browser) as browser, served(Explorer([atlas]).serve()) as server:
        page, _ = opened(browser, server.address)
        use = dragged(page)
        use = dragged(page)  # by now the page knows what this machine manages
        settle(page)
        page.evaluate("horosphere.panes[0].reset()")
        seen = page.evaluate(ALONE)
        settle(page)
        other = new_page(browser)
        other.goto(f"{files}/peer.html")
        other.wait_for_function("window.ready")
        other.evaluate(f"show('{count}.bin', {seen['width']}, {seen['height']}, {seen['radius']})")
        for turn in range(-1, args.rounds):
            for name, where, code in (("ours", page, OURS), ("theirs", other, THEIRS)):
                frames = where.evaluate(code, [turn * FRAMES + FRAMES, FRAMES])
                if turn >= 0:  # the first is for warming up
                    taken[name].add(frames)
        drawn = other.evaluate("peer.plot.__debugPolicy")
        assert (drawn["baseDrawCount"], drawn["useLod"]) == (count, False)
        canvas = f"{seen['width']} x {seen['height']}"
        print(
            f"{count:,} points on {canvas}, {2 * seen['radius']:.2f} pixels wide; theirs in pictures of "
            f"{drawn['pointsDpr']:.2f} of the size, as {'squares' if drawn['renderAsSquares'] else 'discs'}"
        )
        if args.shots:
            page.screenshot(path=args.shots / f"frames-ours-{count}.png")
            other.evaluate("peer.plot.render()")
            other.screenshot(path=args.shots / f"frames-theirs-{count}.png")
    ours, theirs = taken["ours"], taken["theirs"]
    cells = [f"{t.ms:.1f} ({t.least:.1f})" for t in (ours, theirs)]
    ratios = [f"{ours.ms / theirs.ms:.2f}", f"{ours.least / theirs.least:.2f}", f"{statistics.median(ours.handed):.1f}"]
    return [f"{count:,}", *cells, *ratios, f"{use['ms']:.0f}", f"{min(count, use['most']):,}"]


# -- edges ------------------------------------------------------------------------------------------------------------


def print_edges(args: argparse.Namespace, folder: Path) -> None:
    rows = []
    named = {"tree": lambda: tree(args.edges), **({"run": lambda: open_atlas(args.run)} if args.run else {})}
    for name, make in named.items():
        atlas = make()
        graph = atlas.vectors.graph
        with browsing(args.browser) as browser, served(Explorer([atlas]).serve()) as server:
            page, _ = opened(browser, server.address)
            settle(page)
            dragged(page)
            use = dragged(page)
            settle(page)
            page.evaluate("horosphere.panes[0].reset()")
            times = {}
            for shown in ("false", "true"):
                page.evaluate(f"horosphere.panes[0].showsEdges = {shown}; horosphere.panes[0].showsLabels = {shown}")
                settle(page)
                frames = Taken()
                page.evaluate(OURS, [0, 1])
                for turn in range(args.rounds):
                    frames.add(page.evaluate(OURS, [turn * FRAMES, FRAMES]))
                times[shown] = frames.ms
            count = 0 if graph is None else len(graph.edges)
            both = [f"{times[shown]:.0f}" for shown in ("false", "true")]
            rows.append([name, f"{len(atlas):,}", f"{count:,}", *both, f"{use['ms']:.0f}", f"{use['wall']:.1f}"])
            if args.shots:
                settle(page)
                page.screenshot(path=args.shots / f"edges-{name}.png")
    print("\nours with edges and labels, ms of a frame")
    heads = ["what", "points", "edges", "points alone", "all edges", "in use", f"{MOVES} moves of a mouse, s"]
    print(*table_lines(heads, rows), sep="\n")


# -- first picture, memory of the page --------------------------------------------------------------------------------


def print_pages(args: argparse.Namespace, folder: Path) -> None:
    many = folder / "many.npz"
    np.savez(many, points=on_disk(MANY, 3).numpy())
    kinds: dict[str, Callable[[], Atlas]] = {
        f"{NOUNS:,} points": lambda: points_alone(NOUNS),
        "tree": lambda: tree(args.edges),
    }
    if args.run:
        kinds["run"] = lambda: open_atlas(args.run)
    kinds[f"{MANY:,} points, 3 dimensions"] = lambda: Atlas("many", read_points(many, "lorentz"))
    rows = []
    for name, make in kinds.items():
        explorer = Explorer([make()])
        with served(explorer.serve()) as server:
            rows.append(measured(args, name, server.address))
        if name == "run":
            file = explorer.save(folder / "run.html", quiet=True)
            rows.append(measured(args, "run, exported", file.as_uri()))
    print("\nthe page; memory in MiB, after all garbage was collected")
    heads = ["what", "data, s", "picture after data, s", "JavaScript", "process of the page", "graphics process"]
    print(*table_lines(heads, rows), sep="\n")


def measured(args: argparse.Namespace, name: str, address: str) -> list[str]:
    """Each time in a fresh browser; memory of the last one."""
    times = []
    for number in range(PICTURES):
        with browsing(args.browser) as browser:
            page, taken = opened(browser, address)
            times.append(taken)
            if number < PICTURES - 1:
                continue
            settle(page)
            if args.shots:
                page.screenshot(path=args.shots / f"page-{name.split(' ')[0].replace(',', '')}.png")
            session = page.context.new_cdp_session(page)
            session.send("HeapProfiler.collectGarbage")
            used = page.evaluate("performance.memory.usedJSHeapSize") / MIB
            listed = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
            own = max(resident(one["id"]) for one in listed if one["type"] == "renderer")
            card = max(resident(one["id"]) for one in listed if one["type"] == "GPU")
    data, picture = (statistics.median(taken[what] for taken in times) / 1e3 for what in ("data", "picture"))
    return [name, f"{data:.2f}", f"{picture:.2f}", f"{used:.0f}", f"{own:.0f}", f"{card:.0f}"]


def resident(process: int) -> float:
    """MiB of a process, what it shares with others in part."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


# -- the server's side ------------------------------------------------------------------------------------------------


def print_server(args: argparse.Namespace, folder: Path) -> None:
    rows = [in_a_process(NOUNS, 5, None, not args.run), in_a_process(MANY, 3, None, False)]
    if args.run:
        rows.append(in_a_process(0, 0, args.run, True))
    heads = ["what", "open, s", "meta, s", "arrays, s", "neighbours, ms", "memory, MiB", "export, s", "file, MB"]
    print("\nPython's side, one thread; memory is the most that the process held, before an export and with it")
    print(*table_lines(heads, rows), sep="\n")


def in_a_process(*what: Any) -> list[str]:
    """A fresh one, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        answer: list[str] = json.loads(pool.apply(server_side, what))
    return answer


def server_side(count: int, dim: int, run: Path | None, export: bool) -> str:
    torch.set_num_threads(1)
    before = held()
    taken: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        answer = work()
        taken[name] = time.perf_counter() - begin
        return answer

    if run:
        atlas = timed("open", lambda: open_atlas(run))
    else:
        vectors = Vectors([str(i) for i in range(count)], on_disk(count, dim), Lorentz())
        atlas = timed("open", lambda: Atlas("points", vectors))
    timed("meta", atlas.meta)
    trained = {chart["array"] for chart in atlas.meta()["charts"] if chart["name"].startswith("neighbour map")}
    timed("arrays", lambda: [atlas.array(name) for name in atlas.names if name not in trained])
    nodes = np.random.default_rng(0).integers(len(atlas), size=ASKED).tolist()
    timed("neighbours", lambda: [atlas.neighbours(node) for node in nodes])
    memory, file = f"{before:.0f} to {held():.0f}", [""] * 2
    if export:
        page = timed("export", lambda: Explorer([atlas]).page(quiet=True))
        memory += f", {held():.0f}"
        file = [f"{taken['export']:.1f}", f"{len(page) / 1e6:.1f}"]
    name = run.name if run else f"{count:,} x {dim}"
    times = [f"{taken[one]:.2f}" for one in ("open", "meta", "arrays")]
    return json.dumps([name, *times, f"{1e3 * taken['neighbours'] / ASKED:.1f}", memory, *file])


def held() -> float:
    """MiB that this process held at most; `getrusage` would count those of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


PARTS = {"frames": print_frames, "edges": print_edges, "pages": print_pages, "server": print_server}

if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(str(error)) from None
