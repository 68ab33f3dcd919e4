"""Read a hierarchy or a graph from a file: edge lists, adjacency lists, nested JSON, GML, GraphML, GEXF."""

from __future__ import annotations

import io
import math
import zlib
from array import array
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from horosphere.data.graph import Graph, repeats
from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.foreign import LARGE, Unreadable, csv_rows, lines_of, opened, parse_json, printable, read_bytes, shown

# "": the first line decides; " ": any white space
DELIMITER = {".tsv": "\t", ".csv": ",", ".txt": "", ".edges": "", ".edgelist": " "}
DELIMITER_NAME = {"\t": "a tab", ",": "a comma", " ": "white space"}
NETWORKX = (".gml", ".graphml", ".gexf")
EXTENSIONS = (*DELIMITER, ".adjlist", ".json", *NETWORKX)
CHILD_HEADERS = {
    "child",
    "child_id",
    "source",
    "src",
    "from",
    "node",
    "id",
    "id1",
    "node1",
    "name",
    "label",
    "hyponym",
    "descendant",
}
PARENT_HEADERS = {"parent", "parent_id", "target", "dst", "to", "id2", "node2", "hypernym", "ancestor"}

# what edges call their weights in the formats of networkx
WEIGHTS = ("weight", "value", "distance", "length", "cost", "strength", "score", "capacity")
LENGTHS = ("weight", "distance", "length", "cost")  # those that say how long an edge is, not how strong
UNWEIGHTED = "and weights are not read. Pass --unweighted to drop them; objective=distortion takes them for lengths."
SOME = "some edges have a length, and some have none."
# what to do about a file that cannot be read, by how the reason begins
REMEDIES = {
    "no such file": "Check the path",
    "a directory": "Pass one file",
    "a broken gzip": "Compress or download it again",
    "nested": "Write it as an edge list (.tsv: child, parent)",
    "": "Check the file and its permissions",
}

# line (0: unknown), child, parent (None: a node without an edge), length of the edge (None: it has none)
Row = tuple[int, str, str | None, float | None]
Weights = Literal["refuse", "drop", "lengths"]


def read_graph(
    path: str | Path, *, directed: bool = True, unique: bool = False, unweighted: bool = False, weighted: bool = False
) -> Graph:
    """The hierarchy in a file, or with directed=False the undirected graph.

    Without `unique`, no edge may repeat. Weights of edges are dropped with `unweighted`, are lengths with `weighted`,
    and else refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tree.tsv").write_text("dog\\tanimal\\ncat\\tanimal\\n")
    ...     read_graph(f"{folder}/tree.tsv").labels
    ['dog', 'animal', 'cat']
    """
    path = Path(path)
    try:
        return _read(path, directed, unique, "drop" if unweighted else "lengths" if weighted else "refuse")
    except Unreadable as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise UserError(_not_utf8(path)) from None
        how = next(how for start, how in REMEDIES.items() if str(error).startswith(start))
        raise UserError(f"{path}: {error}. {how}.") from None


def _read(path: Path, directed: bool, unique: bool, weights: Weights) -> Graph:
    with opened(path):
        pass  # there is a file
    kind = _kind(path)
    index: dict[str, int] = {}
    ends, lines, lengths = array("q"), array("q"), array("d")
    for line, child, parent, length in _rows(path, kind, directed, weights):
        child, parent = printable(child), parent and printable(parent)
        if not child or parent == "":
            raise UserError(f"{_at(path, line)}: an empty label. Fill it in, or remove the edge (a root needs none).")
        if child == parent:
            does = "is its own parent" if directed else "is linked to itself"
            raise UserError(f'{_at(path, line)}: "{one_line(child)}" {does}. Remove the {"line" if line else "edge"}.')
        node = index.setdefault(child, len(index))
        if parent is not None:
            ends.append(node)
            ends.append(index.setdefault(parent, len(index)))
            lines.append(line)
            if length is not None:
                lengths.append(length)
            if lengths and len(lengths) < len(lines):
                raise UserError(f"{_at(path, line)}: {SOME} Give each one, or pass --unweighted to drop them.")
    if not lines:
        raise UserError(f"{path}: no edges. A graph needs at least one.")
    labels, edges = list(index), np.array(ends).reshape(-1, 2)
    earlier = repeats(edges, directed)
    long = np.array(lengths) if lengths else None
    if unique or (kind == ".adjlist" and not directed):  # adjacency lists name an undirected edge at both of its ends
        edges, long = edges[earlier < 0], None if long is None else long[earlier < 0]
    elif (earlier >= 0).any():
        again = int((earlier >= 0).argmax())
        edge = (" -> " if directed else " - ").join(one_line(labels[i]) for i in edges[again])
        stands = (
            f"stands already in line {lines[earlier[again]]}. Remove it"
            if lines[again]
            else "is there twice. Remove one"
        )
        raise UserError(f"{_at(path, lines[again])}: the edge {edge} {stands}, or pass --unique to drop repeats.")
    try:
        return Graph(labels, edges, directed, long)
    except UserError as error:  # a cycle
        raise UserError(f"{path}: {error}") from None


def _rows(path: Path, kind: str, directed: bool, weights: Weights) -> Iterator[Row]:
    if kind == ".json":
        yield from _json(path)
        return
    with opened(path) as file:
        if kind in (".graphml", ".gexf"):  # XML names its own encoding
            yield from _networkx(file, path, kind, directed, weights)
            return
        text = lines_of(io.TextIOWrapper(file, encoding="utf-8-sig"))
        if kind == ".gml":
            yield from _networkx(text, path, kind, directed, weights)
        elif kind == ".adjlist":
            yield from _adjacency_list(text, path)
        else:
            yield from _edge_list(text, path, DELIMITER[kind], directed, weights)


def _edge_list(text: Iterator[str], path: Path, delimiter: str, directed: bool, weights: Weights) -> Iterator[Row]:
    lines: Iterator[str] = _lines(text, path, quotes=delimiter == ",")
    if not delimiter:
        head = []
        for line in lines:
            head.append(line)
            if line.strip():
                break
        first = "".join(head).strip()
        delimiter = "\t" if "\t" in first else "," if "," in first else " "
        lines = chain(head, lines)
    header = True  # may come
    split = (line.split(None if delimiter == " " else delimiter, 2) for line in lines)
    for number, row in _comma_separated(lines, path) if delimiter == "," else enumerate(split, 1):
        if not any(map(str.strip, row)):
            continue
        if len(row) < 2:
            columns = "child, parent" if directed else "one for each end"
            raise UserError(
                f"{_at(path, number)}: one column; "
                f"an edge needs two ({columns}), separated by {DELIMITER_NAME[delimiter]}."
            )
        if header:
            header = False
            left, right = (cell.strip().lower().replace(" ", "_") for cell in row[:2])
            if left in CHILD_HEADERS and right in PARENT_HEADERS:
                continue
            if directed and left in PARENT_HEADERS and right in CHILD_HEADERS:
                raise UserError(
                    f"{_at(path, number)}: the columns are {left}, {right}; an edge is child, parent. Swap the columns."
                )
        length = None
        if len(row) > 2 and weights != "drop":
            cells = row[2:] if delimiter == "," else row[2].split(None if delimiter == " " else delimiter)
            if weights == "lengths" and _reads_as_number(cells[0]):
                length = _length(cells[0], _at(path, number))
            _refuse_weight(cells, path, number, first=length is not None)
        yield number, row[0], row[1], length


def _length(value: object, where: str) -> float:
    """Of an edge."""
    if not 0 < (length := float(str(value))) < math.inf:
        how = "lengths are positive numbers. Correct it, or pass --unweighted to drop them all."
        raise UserError(f"{where}: an edge of the length {one_line(value, 20)}; {how}")
    return length


def _refuse_weight(cells: list[str], path: Path, line: int, first: bool = False) -> None:
    """What comes behind an edge may be words. A number is a weight, and so is what networkx writes of one.

    first: the first has been read.
    """
    for column, cell in list(enumerate(cells, 3))[first:]:
        if _reads_as_number(cell):
            where = {3: "a third column", 4: "a fourth column"}.get(column, f"column {column}")
            raise UserError(f"{_at(path, line)}: {where} with the number {one_line(cell)}, {UNWEIGHTED}")
    rest = " ".join(cells)
    if name := next((name for name in WEIGHTS if f"'{name}':" in rest), None):
        raise UserError(f"{path}: edges have a {name}, {UNWEIGHTED}")


def _comma_separated(lines: Iterable[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        # strict: otherwise an open quote swallows the rest of the file
        yield from csv_rows(lines, strict=True, skipinitialspace=True)
    except Unreadable as error:
        raise UserError(f"{path} {error}. Close the quotes, and double those inside a cell.") from None


def _adjacency_list(text: Iterator[str], path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(text, path), 1):
        node, *others = line.partition("#")[0].split() or [""]
        if node:
            yield number, node, None, None
        for other in others:
            yield number, node, other, None


def _lines(text: Iterator[str], path: Path, quotes: bool = False) -> Iterator[str]:
    """The lines of a text. Comments become empty lines, so that line numbers hold.

    quotes: a line may begin with # inside open quotes, where it is no comment.
    """
    quoted = False
    for number, line in enumerate(text, 1):
        if "\0" in line:
            raise UserError(f"{_at(path, number)}: a NUL byte; this is no UTF-8 text. Save the file as UTF-8.")
        comment = not quoted and line.startswith("#")
        yield "\n" if comment else line
        quoted ^= quotes and not comment and line.count('"') % 2 == 1


def _json(path: Path) -> Iterator[Row]:
    """{"name": "animal", "children": [...]}, or plain nesting {"animal": {"dog": null, "cat": ["tabby", "manx"]}}."""

    def below(value: Any, parent: str | None) -> Iterator[tuple[str, Any, str | None]]:
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(item, str):
                yield item, None, parent
            elif isinstance(item, dict) and not named:
                yield from ((label, further, parent) for label, further in item.items())
            elif isinstance(item, dict) and isinstance(item.get("name"), str):
                yield item["name"], item.get("children"), parent
            else:
                wanted = 'an object with a "name"' if named else "an object, a list of labels, a label or null"
                raise UserError(f"{path}: {shown(item)} stands where {wanted} should. Write labels as strings.")

    content = read_bytes(path, LARGE)
    try:
        tree = parse_json(content)
    except Unreadable as error:
        if str(error).startswith("nested") or isinstance(error.__cause__, UnicodeDecodeError):
            raise
        raise UserError(f"{path}: no valid JSON ({error}). Correct it.") from None
    roots = tree if isinstance(tree, list) else [tree]
    named = any(
        isinstance(root, dict) and isinstance(root.get("name"), str) and isinstance(root.get("children"), list)
        for root in roots
    )
    stack = [*below(tree, None)][::-1]  # not recursion: trees are deeper than Python's stack
    while stack:
        label, value, parent = stack.pop()
        yield 0, label, parent, None
        stack.extend([*below(value, label)][::-1])


def _networkx(
    file: IO[bytes] | Iterator[str], path: Path, kind: str, directed: bool, weights: Weights
) -> Iterator[Row]:
    require("graphs")
    import networkx as nx

    try:
        graph = nx.parse_gml(file, label=None) if kind == ".gml" else getattr(nx, f"read_{kind[1:]}")(file)
    except (EOFError, OSError, UnicodeDecodeError, Unreadable, zlib.error):
        raise
    except Exception as error:  # its parsers raise whatever they run into
        raise UserError(f"{path}: no valid {kind[1:]} ({one_line(error)}). Correct it, or export it again.") from None
    if directed and not graph.is_directed():
        raise UserError(f"{path}: an undirected graph, not a hierarchy. Pass --graph to read it as one.")
    named = {name for *_, data in graph.edges(data=True) for name in WEIGHTS if _reads_as_number(data.get(name))}
    read = next((name for name in LENGTHS if name in named), None) if weights == "lengths" else None
    if weights != "drop" and (others := [name for name in WEIGHTS if name in named - {read}]):
        raise UserError(f"{path}: edges have a {others[0]}, {UNWEIGHTED}")
    name = {node: str(data.get("label", "")).strip() for node, data in graph.nodes(data=True)}
    if "" in name.values() or len(set(name.values())) < len(name):
        name = {node: str(node) for node in graph}  # labels that do not tell the nodes apart: use ids
    yield from ((0, label, None, None) for label in name.values())
    for child, parent, data in graph.edges(data=True):
        value = data.get(read) if read else None
        yield 0, name[child], name[parent], None if value is None else _length(value, str(path))


def _kind(path: Path) -> str:
    kind = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if kind not in EXTENSIONS:
        raise UserError(
            f"{path}: unknown extension {kind or '(none)'}. Known are {' '.join(EXTENSIONS)}, each also with .gz."
        )
    return kind


def _reads_as_number(value: object) -> bool:
    """A number, or text that is one."""
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _not_utf8(path: Path) -> str:
    with opened(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            if number == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                return f"{path}: UTF-16 text. Save it as UTF-8."
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f"{path} line {number}, byte {error.start + 1}: no UTF-8 text. Save the file as UTF-8."
    raise AssertionError("undecodable, yet every line decodes")


def _at(path: Path, line: int) -> str:
    return f"{path} line {line}" if line else str(path)
