"""Only the tests named in the JSON list at $MUTATION_CHOICE, in that order: a plugin of pytest for `mutation.py`."""

import json
import os
from pathlib import Path
from typing import Any


def pytest_collection_modifyitems(items: list[Any]) -> None:
    order = {name: i for i, name in enumerate(json.loads(Path(os.environ["MUTATION_CHOICE"]).read_text()))}
    items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
