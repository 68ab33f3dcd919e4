"""Distances of the four graphs of Gu et al. 2019 in products of geometries: what a search finds, beside the paper.

    python benchmarks/signatures.py graphs/                  usca312, ca-CSphd, inf-power, facebook_combined
    python benchmarks/signatures.py graphs/ --only usca312

Runs go to runs/signatures/, and a search that was stopped goes on with the same command.
"""

import argparse
import time
from pathlib import Path

from horosphere.runs import RUN
from horosphere.study.executors import Here
from horosphere.study.signature import search
from horosphere.tables import table_lines

PUBLISHED = {"usca312": 0.059, "ca-CSphd": 0.036, "inf-power": 0.032, "facebook_combined": 0.040}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, help="folder of NAME.edges")
    parser.add_argument("--only", choices=PUBLISHED, help="one of the graphs")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    args = parser.parse_args()
    rows = []
    for name in [args.only] if args.only else PUBLISHED:
        out, begin = Path("runs/signatures") / name, time.perf_counter()
        settings = [f"data={args.graphs / name}.edges", "graph=true"]
        found = search(settings, out, Here(args.jobs), "cpu", overwrite=(out / RUN).is_file())
        print(name, *found.lines(), "", sep="\n")
        best, took = found.best, time.perf_counter() - begin
        rows.append([name, best.signature, f"{best.distortion:.4f}", f"{PUBLISHED[name]:.3f}", f"{took:.0f} s"])
    print(*table_lines(["graph", "signature", "average distortion", "published best", "search"], rows), sep="\n")


if __name__ == "__main__":
    main()
