"""A page of the explorer in a real browser: where its points are, what it says, and waiting without guesses."""

import io
import math
import shutil
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SOFTWARE = (  # without a graphics card; the page itself is put together without one too, which is faster then
    *("--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
    *("--disable-gpu-compositing", "--disable-background-networking"),
)
PATIENCE = 60  # seconds for what should come at once
SEEN = """() => window.horosphere
  && horosphere.views.every((view) => view.distortion || !view.atlas.meta.anchors)  // its line may move the map
  && horosphere.panes.every((pane) => !pane.flight && !pane.asked && pane.effort.frames.length
    && !Object.values(pane.stale).includes(true))"""


def browser_here():
    """The path of a browser; the tests of a module are skipped where there is none."""
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is installed", allow_module_level=True)
    return found


@contextmanager
def serving(explorer, **how):
    """The address of an explorer while it is served."""
    with explorer.serve(**how) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.address
        finally:
            server.shutdown()
            thread.join()


class Driven:
    """What tests do with a page. Pixels are those of the window, as the pointer has them."""

    def __init__(self, page):
        self.page = page
        self.press, self.type = page.keyboard.press, page.keyboard.type
        self.find = page.locator

    def ask(self, expression, argument=None):
        return self.page.evaluate(expression, argument)

    def until(self, expression, argument=None):
        """What an expression gives once that is true. Playwright's own waiting needs what the page's policy forbids."""
        end = time.monotonic() + PATIENCE
        while not (found := self.ask(expression, argument)):
            if time.monotonic() > end:
                pytest.fail(f"in {PATIENCE} s it was never so: {expression} {argument if argument is not None else ''}")
            self.page.wait_for_timeout(5)
        return found

    def seen(self):
        """Once all that was asked for is drawn, and known."""
        self.until(SEEN)
        return self

    # -- points -------------------------------------------------------------------------------------------------------

    def places(self, atlas=0):
        """Of all points in the picture, not on the screen; nan behind the sphere.   -> (N,) complex"""
        pairs = self.ask(
            """(atlas) => { const { space } = horosphere.panes[atlas];
            return Array.from({ length: space.count }, (_, i) => {
              const z = space.place(i); return z ? [z.re, z.im] : [NaN, NaN]; }); }""",
            atlas,
        )
        return np.array(pairs) @ [1, 1j]

    def pixels(self, atlas=0):
        """Of all points.   -> (N, 2)"""
        return np.array(
            self.ask(
                """(atlas) => { const pane = horosphere.panes[atlas]; const box = pane.canvas.getBoundingClientRect();
                return Array.from({ length: pane.space.count }, (_, i) => { const at = pane.at(i);
                  return at ? [box.left + at.x, box.top + at.y] : [NaN, NaN]; }); }""",
                atlas,
            )
        )

    def at(self, node, atlas=0):
        return tuple(self.pixels(atlas)[node].astype(float))

    def box(self, atlas=0):
        """Of a map: left, top, width, height."""
        box = self.find(".pane").nth(atlas).bounding_box()
        return box["x"], box["y"], box["width"], box["height"]

    def alone(self, atlas=0, room=26):
        """Numbers of points that a pointer cannot mistake for others, the nearest to the middle first."""
        pixels = self.pixels(atlas)
        left, top, width, height = self.box(atlas)
        apart = np.hypot(*(pixels[:, None] - pixels[None]).transpose(2, 0, 1))
        np.fill_diagonal(apart, np.inf)
        inside = (np.abs(pixels - [left + width / 2, top + height / 2]) < [width / 2 - 10, height / 2 - 10]).all(1)
        found = np.flatnonzero(inside & (np.nanmin(apart, 1) > room))
        middle = np.hypot(*(pixels[found] - [left + width / 2, top + height / 2]).T)
        return found[middle.argsort()].tolist()

    # -- hands --------------------------------------------------------------------------------------------------------

    def drag(self, *way):
        mouse = self.page.mouse
        mouse.move(*way[0])
        mouse.down()
        for place in way[1:]:
            mouse.move(*place)
        mouse.up()

    def focus(self, node, atlas=0):
        """By number or label; where it is stays as it is. Its neighbours are known then."""
        self.ask(
            """([atlas, node]) => { const view = horosphere.views.at(atlas);
            horosphere.app.focus(view, typeof node === 'string' ? view.atlas.find(node) : node); }""",
            [atlas, node],
        )
        self.until("(atlas) => horosphere.views.at(atlas).neighbours", atlas)

    def click(self, node, atlas=0):
        self.page.mouse.click(*self.at(node, atlas))

    def button(self, name):
        return self.page.get_by_role("button", name=name, exact=True)

    def chooser(self, name):
        return self.page.get_by_role("combobox", name=name, exact=True)

    def chart(self, name, atlas=0):
        self.find("select[aria-label=chart]").nth(atlas).select_option(label=name)
        self.until("([atlas, name]) => horosphere.panes[atlas].chart.name === name", [atlas, name])
        return self.seen()

    def saved(self, press):
        """The bytes of the file that a press gives, and its name."""
        with self.page.expect_download() as waiting:
            press()
        with open(waiting.value.path(), "rb") as file:
            return file.read(), waiting.value.suggested_filename

    # -- what is shown ------------------------------------------------------------------------------------------------

    def look(self, atlas=0):
        """{selected, shown, focus} by number."""
        return self.ask(
            """(atlas) => { const { look, focus } = horosphere.views.at(atlas);
            const shown = [...look.shown.keys()].filter((i) => look.shown[i]);
            return { selected: [...look.selected].sort((a, b) => a - b), shown, focus }; }""",
            atlas,
        )

    def neighbours(self):
        """Of the focused point, as the panel lists them: (label, distance, sign) each."""
        self.until("() => document.querySelector('.neighbours li')")
        return [
            (label, float(distance), sign)
            for label, distance, sign in self.ask(
                """() => [...document.querySelectorAll('.neighbours li')].map((li) => ['.goto', '.distance', '.sign']
                .map((part) => li.querySelector(part).textContent))"""
            )
        ]

    def picture(self, atlas=0):
        """Of a map.   -> (h, w, 3) ints"""
        Image = pytest.importorskip("PIL.Image", reason="pictures are read by pillow")
        self.seen()
        return np.array(Image.open(io.BytesIO(self.find(".pane").nth(atlas).screenshot())).convert("RGB")).astype(int)


def apart(z, w=None):
    """Distances in the hyperbolic plane between places of the Poincaré disk."""
    z, w = (z[:, None], z[None]) if w is None else (z, w)
    return 2 * np.arcsinh(np.abs(z - w) / np.sqrt((1 - np.abs(z) ** 2) * (1 - np.abs(w) ** 2)))


def inked(picture, colour=(255, 255, 255), within=24):
    """How many pixels have a colour; of paper: how many do not."""
    off = np.abs(picture - np.array(colour)).max(-1)
    return int((off > within).sum() if colour == (255, 255, 255) else (off <= within).sum())


def middle(box):
    left, top, width, height = box
    return left + width / 2, top + height / 2


def between(a, b, share=0.5):
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])


def far(a, b):
    return math.hypot(a[0] - b[0], a[1] - b[1])
