"""Pictures of docs/explorer.md, taken of real runs in a browser that is there:

python docs/make_explorer.py --tree runs/mammals-lorentz-5 --flat runs/mammals-euclidean-5 --towers runs/two-towers
"""

import argparse
import io
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from horosphere.explorer import Explorer, open_atlas

IMAGES = Path(__file__).with_name("images")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 320, "height": 720}
CALM = 1.5  # seconds until nothing flies any more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tree", "flat", "towers"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    with sync_playwright() as playwright:
        program = next(path for name in BROWSERS if (path := shutil.which(name)))
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)

        def shoot(name: str, folders: list[Path], act: Callable[[Page], Any], size: Any = WIDE, **how: Any) -> None:
            with served(folders) as address:
                page = browser.new_page(viewport=size, **how)
                page.goto(address)
                poll(page, "performance.getEntriesByName('picture').length > 0")
                act(page)
                time.sleep(CALM)
                save(page.screenshot(), IMAGES / f"explorer-{name}.png")
                page.close()

        shoot("tree", [args.tree], lambda page: find(page, "dog"))
        shoot("two", [args.tree, args.flat], lambda page: find(page, "carnivore"))
        shoot("towers", [args.towers], lambda page: find(page, "dog"), color_scheme="dark")
        shoot("phone", [args.tree], lambda page: None, NARROW)
        browser.close()


@contextmanager
def served(folders: list[Path]) -> Iterator[str]:
    with Explorer([open_atlas(folder) for folder in folders]).serve() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.address
        server.shutdown()


def save(picture: bytes, path: Path) -> None:
    """In 128 colours, which is a third of the size."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def poll(page: Page, condition: str) -> None:
    """The page's policy forbids what Playwright's own waiting needs."""
    for _ in range(300):
        if page.evaluate(f"() => {condition}"):
            return
        time.sleep(0.1)
    raise TimeoutError(condition)


def find(page: Page, text: str) -> None:
    page.keyboard.press("/")
    page.keyboard.type(text)
    time.sleep(CALM / 3)
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")


if __name__ == "__main__":
    main()
