"""`horosphere explore`: embeddings in their own geometry, in the browser."""

import argparse
from pathlib import Path
from typing import Annotated, Any

from horosphere.cli.common import command, named, names, of
from horosphere.errors import UserError
from horosphere.settings import Amount, Range

Port = Annotated[int, Range(least=0, most=65535)]


def add(commands: Any) -> None:
    summary = "see an embedding in its own geometry, in the browser: of a run, or points of a file"
    explore = command(commands, "explore", run, summary, "horosphere explore runs/tree-lorentz-10")
    what = "a run that learned points, or a .npz, .npy, .csv, .tsv, .parquet, .safetensors; two are put side by side"
    explore.add_argument("sources", metavar="RUN|FILE", nargs="+", help=what)
    spaces = "euclidean (default), lorentz (space components), poincare, sphere (vectors of one length)"
    own = explore.add_argument_group("points of a file")
    own.add_argument("--geometry", metavar="NAME", help=f"what they lie in: {spaces}, lorentz:6+sphere:4")
    own.add_argument(
        "--curvature", metavar="C", type=of(Amount), help="c > 0: curvature -c, of a sphere +c (default 1)"
    )
    labels = "a label a line; or a table with a header: the label, then columns to colour by"
    own.add_argument("--labels", metavar="FILE", type=named, help=labels)
    own.add_argument("--edges", metavar="FILE", type=named, help="a tree or graph of the labels, as `embed` reads it")
    columns = "columns of a table that are coordinates (default x1, x2, …)"
    own.add_argument("--coordinates", metavar="A,B", type=names, default=[], help=columns)
    where = explore.add_argument_group("where it is shown")
    where.add_argument("--export", metavar="FILE", type=named, help="write one page that needs no server, and end")
    where.add_argument("--overwrite", action="store_true", help="replace the file that is there")
    where.add_argument("--quiet", action="store_true", help="no progress")
    where.add_argument("--no-open", action="store_true", help="print the address, open no browser")
    where.add_argument("--port", metavar="N", type=of(Port), default=0, help="default: any that is free")
    here = "where it listens (default 127.0.0.1: this machine alone); another one asks for a token"
    where.add_argument("--host", metavar="NAME", type=named, default="127.0.0.1", help=here)
    where.add_argument("--token", metavar="TEXT", type=named, help="what a browser must know to be answered")


def run(args: argparse.Namespace) -> None:
    from horosphere.explorer import Explorer
    from horosphere.explorer.server import new_token
    from horosphere.files import require_new_file
    from horosphere.local_server import is_loopback

    if args.export and not args.export.endswith((".html", ".htm")):
        raise UserError(f"--export {args.export}: it is a web page; give it a name that ends in .html")
    if args.export:
        require_new_file(args.export, args.overwrite, "--export")
        for read in (*args.sources, args.labels, args.edges):
            if read and Path(args.export).exists() and Path(args.export).samefile(read):
                raise UserError(f"--export {args.export}: the points are read from it; choose another name")
    explorer = Explorer([_opened(source, args) for source in args.sources])
    if args.export:
        path = explorer.save(args.export, args.overwrite, args.quiet)
        size = path.stat().st_size / 1e6
        print(f"{path}: one page of {size:,.1f} MB, for any browser, without a network")
        return
    token = args.token or ("" if is_loopback(args.host) else new_token())
    with explorer.serve(args.host, args.port, token) as server:
        to_all = "" if server.private else "; whoever has this address may look, over a connection that others can read"
        print(f"{explorer.title}: {server.address}{to_all}; Ctrl-C stops", flush=True)
        if not args.no_open and server.private:
            import webbrowser

            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


def _opened(source: str, args: argparse.Namespace) -> Any:
    """A run is a folder; all else are files of points."""
    from horosphere.explorer import open_atlas
    from horosphere.explorer.atlas import Atlas
    from horosphere.explorer.points import read_points

    given = [f"--{name}" for name in ("geometry", "labels", "edges", "coordinates") if getattr(args, name)]
    if Path(source).is_dir():
        if given:
            raise UserError(f"{given[0]} is for points of a file; {source} is a run, which knows its own")
        return open_atlas(source)
    if not Path(source).exists():
        raise UserError(f"{source}: no such file or folder; give a run, or a file of points")
    return Atlas(
        Path(source).name,
        read_points(source, args.geometry or "euclidean", args.curvature, args.labels, args.edges, args.coordinates),
    )
