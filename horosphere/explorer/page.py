"""The page, as one HTML file: with its data inside, or empty and fed by a server."""

from __future__ import annotations

import gzip
import hashlib
from base64 import b64encode
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch

from horosphere import __version__
from horosphere.explorer.atlas import NEIGHBOURS, Atlas, as_json
from horosphere.foreign import read_text
from horosphere.progress import Update

BUNDLE = Path(__file__).with_name("page")  # built from web/ by `npm run build`
PICTURES = 2_000  # of one atlas inside a file: 8 MB
ROWS = 1_024  # points whose neighbours are found between two words of progress


def served_page(title: str) -> tuple[str, str]:
    """The page that asks its server for data, and its content security policy."""
    return _html(title, ""), _policy("connect-src 'self'; ")


def exported_page(title: str, atlases: list[Atlas], update: Update) -> str:
    """The page that holds all its data and may ask nobody.

    update(done, what) hears of points whose neighbours are known.
    """
    metas, parts, done = [], [], 0
    for number, atlas in enumerate(atlases):
        meta = atlas.meta()
        for name in atlas.names:
            content = atlas.array(name)
            assert content is not None
            parts.append(_part(f"{number}/{name}", content))
        if len(atlas) > 1:
            meta["nearest"] = {"k": min(NEIGHBOURS, len(atlas) - 1), "numbers": "near", "distances": "far"}
            numbers, distances = [], []
            for rows in torch.arange(len(atlas)).split(ROWS):
                near, far = atlas.nearest(rows)
                numbers.append(near.numpy().astype("<u4"))
                distances.append(far.numpy().astype("<f8"))
                done += len(rows)
                update(done, "points")
            parts.append(_part(f"{number}/near", np.concatenate(numbers).tobytes()))
            parts.append(_part(f"{number}/far", np.concatenate(distances).tobytes()))
        if meta["thumbnails"]:
            pictures = ((node, atlas.thumbnail(node)) for node in range(min(len(atlas), PICTURES)))
            parts += [_element(f"{number}/thumbnail/{node}", content) for node, content in pictures if content]
        metas.append(meta)
    parts.append(_part("meta", as_json(meta_of(title, metas))))
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy("")}">'
    return _html(title, "\n".join(parts), policy)


def meta_of(title: str, atlases: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "version": __version__, "atlases": atlases}


def _part(name: str, content: bytes) -> str:
    return _element(name, gzip.compress(content, 6, mtime=0))  # no time: the same data make the same file


def _element(name: str, content: bytes) -> str:
    return f'<script type="text/plain" id="{escape(name)}">{b64encode(content).decode()}</script>'


def _bundle() -> tuple[str, str]:
    script, style = (read_text(BUNDLE / name) for name in ("explorer.js", "explorer.css"))
    assert "</script" not in script
    assert "</style" not in style
    return script, style


def _policy(more: str) -> str:
    """This script, this style sheet, and no other; pictures that the page holds itself; no network."""
    script, style = (f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in _bundle())
    images = "img-src data: blob:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; {more}script-src {script}; style-src {style}; {images}"


def _html(title: str, data: str, head: str = "") -> str:
    script, style = _bundle()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">{head}'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>\n"
        f'{data}\n<div id="explorer"></div><script>{script}</script></body></html>\n'
    )
