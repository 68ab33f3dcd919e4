"""`horosphere neighbors`: what lies near a node of an embedding."""

import argparse
import json
import re
from typing import Any

from horosphere.cli.common import command, of, table
from horosphere.errors import one_line
from horosphere.settings import Count

CHILDREN = 8  # that are named; of more, their number


def add(commands: Any) -> None:
    summary = "the nodes nearest to a node of an embedding, by the distance of its geometry"
    example = "horosphere neighbors runs/tree-lorentz-10 dog cat --k 5"
    neighbors = command(commands, "neighbors", run, summary, example)
    neighbors._negative_number_matcher = re.compile(r"-(?!-)")  # -x is a node, and no option
    behind = "a node that begins with -- stands last, behind a -- of its own: horosphere neighbors RUN -- --node"
    neighbors.set_defaults(hint=behind)
    neighbors.add_argument("folder", metavar="RUN", help="a folder made by `horosphere embed`")
    neighbors.add_argument("nodes", metavar="NODE", nargs="+", help=f"as the data call it; {behind}")
    neighbors.add_argument("--k", metavar="N", type=of(Count), default=10, help="neighbours (default 10)")
    neighbors.add_argument("--json", action="store_true", help="for other programs")


def run(args: argparse.Namespace) -> None:
    from horosphere.runs import Run

    embedded = Run.open(args.folder, "nodes").load()
    told = [embedded.surroundings(node, args.k) for node in args.nodes]
    if args.json:
        print(json.dumps(told, ensure_ascii=False, indent=1))
        return
    for place, about in enumerate(told):
        if place:
            print()
        _print(about)


def _print(about: dict[str, Any]) -> None:
    rows = [["node", one_line(about["node"])]]
    if "path" in about:
        rows.append(["path", " < ".join(one_line(node) for node in about["path"])])
        beside = [node for node in about["ancestors"] if node not in about["path"]]
        rows += [["also below", _listed(beside)]] if beside else []
        rows += [["children", _listed(about["children"])]] if about["children"] else []
    elif "linked" in about:
        rows.append(["linked", _listed(about["linked"])])
    table([], rows)
    known = "is" in (about["neighbors"] or [{}])[0]
    heads = ["neighbor", "distance", *(["it is"] if known else [])]
    near = [[one_line(n["node"]), f"{n['distance']:.3f}", *([n["is"]] if known else [])] for n in about["neighbors"]]
    table(heads, near)


def _listed(names: list[str]) -> str:
    more = f", … ({len(names):,})" if len(names) > CHILDREN else ""
    return ", ".join(one_line(name) for name in names[:CHILDREN]) + more
