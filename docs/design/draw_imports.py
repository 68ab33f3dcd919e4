"""Draw which room imports which: python docs/design/draw_imports.py imports.png before=OLD/horosphere now=horosphere

Rooms stand on their floors, as tests/test_layers.py has them. An arrow goes from a room to the one it imports; red is
an import from above, which no room should have.
"""

import sys
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.test_layers import FLOORS, imports, room_of

GROUND = "foundation"
FLOOR = {GROUND: 0} | {room: number for number, rooms in enumerate(FLOORS) if number for room in rooms}
DOWN, UP = "#7a86b8", "#d62728"


def edges(package: Path) -> Counter[tuple[str, str]]:
    """How often one room imports another."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in package.rglob("*.py"):
        room = named(room_of(path, package))
        others = [module.split(".")[1] for _, module in imports(path) if (module or "").startswith("horosphere.")]
        counts.update((room, named(other)) for other in others if named(other) and named(other) != room and room)
    return counts


def named(room: str) -> str:
    if room in FLOORS[0]:
        return GROUND
    return room if room in FLOOR else ""


def places(rooms: set[str]) -> dict[str, tuple[float, float]]:
    """Floors from the ground up, each shifted a little from the one below, so that arrows can be told apart."""
    floors = sorted({FLOOR[room] for room in rooms})
    spots = {}
    for height, floor in enumerate(floors):
        here = sorted(room for room in rooms if FLOOR[room] == floor)
        middle = 0.0 if floor in (0, floors[-1]) else (-0.55, 0.55)[height % 2]
        spots |= {room: (middle + 0.7 * (i - (len(here) - 1) / 2), float(height)) for i, room in enumerate(here)}
    return spots


def draw(axes: plt.Axes, package: Path, title: str) -> None:
    counts = edges(package)
    spots = places({room for edge in counts for room in edge})
    upward = sum(count for (a, b), count in counts.items() if FLOOR[a] <= FLOOR[b])
    for (a, b), count in sorted(counts.items(), key=lambda edge: FLOOR[edge[0][0]] <= FLOOR[edge[0][1]]):
        wrong = FLOOR[a] <= FLOOR[b]
        bend = 0.3 if wrong else -0.12
        style = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "shrinkA": 16, "shrinkB": 16}
        look = {"color": UP if wrong else DOWN, "alpha": 0.95 if wrong else 0.4, "lw": 0.7 + 0.25 * count**0.5}
        axes.annotate("", spots[b], spots[a], arrowprops={**style, **look, "zorder": 2 if wrong else 1})
    for room, (x, y) in spots.items():
        box = {"boxstyle": "round,pad=0.35", "fc": "white", "ec": "#444", "lw": 0.8}
        axes.text(x, y, room, ha="center", va="center", bbox=box, fontsize=10, zorder=3)
    axes.set_title(f"{title}: {upward} imports from above" if upward else f"{title}: no import from above")
    axes.set_xlim(-1.9, 1.9)
    axes.set_ylim(-0.5, max(y for _, y in spots.values()) + 0.5)
    axes.axis("off")


def main() -> None:
    out, *panels = sys.argv[1:]
    figure, all_axes = plt.subplots(1, len(panels), figsize=(6.2 * len(panels), 8.5), layout="constrained")
    for axes, panel in zip(all_axes, panels, strict=True):
        title, _, package = panel.partition("=")
        draw(axes, Path(package), title)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
