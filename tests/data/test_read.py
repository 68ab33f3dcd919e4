"""read_graph: every format, and every mistake gets one line that says what to do."""

import gzip
import json
import os
import sys
import time
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from horosphere.data import read, read_graph
from horosphere.data.read import EXTENSIONS
from horosphere.errors import UserError

PETS = [("dog", "pet"), ("cat", "pet"), ("tabby", "cat")]


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(
            gzip.compress(data) if name.endswith(".gz") and isinstance(content, str) else data
        )
        return tmp_path / name

    return write


def named(graph):
    return [(graph.labels[a], graph.labels[b]) for a, b in graph.edges]


def refusal(path, **options):
    """The message, without the folder."""
    with pytest.raises(UserError) as error:
        read_graph(path, **options)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "dog\tpet\ncat\tpet\ntabby\tcat\n"),
        ("t.tsv", "# comment\n\nChild\tParent\n dog \tpet\twoof\tmore\n\t\ncat\tpet\n#\ntabby\tcat"),
        ("t.tsv", "\ufeffchild\tparent\r\ndog\tpet\r\ncat\tpet\r\ntabby\tcat\r\n"),
        ("t.TSV.gz", "dog\tpet\ncat\tpet\ntabby\tcat\n"),
        ("t.csv", 'id1,id2,sound\n"dog",pet,woof\ncat, "pet",\n# a, "b\ntabby,cat\n,,\n'),
        ("t.csv", 'dog,pet,"a long\n# description"\ncat,pet\ntabby,cat\n'),
        ("t.txt", "\n# any\ndog\tpet\ncat\tpet\ntabby\tcat"),
        ("t.txt", "source,target\ndog,pet\ncat,pet\ntabby,cat"),
        ("t.edges", "dog pet\n  cat   pet of mine\ntabby cat"),
        ("t.edgelist", "dog pet {'a': 1, 'b': 2}\ncat pet {}\ntabby cat"),
        ("t.adjlist", "#file\ndog pet # note\ncat pet\ntabby cat\npet\n"),
    ],
)
def test_edge_lists(put, name, content):
    graph = read_graph(put(name, content))
    assert named(graph) == PETS
    assert graph.labels == ["dog", "pet", "cat", "tabby"]
    assert graph.edges.dtype == np.int64


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("t.tsv", "dog\tpet\t0.5\tmore\ncat\tpet\ntabby\tcat\n", " line 1: a third column with the number 0.5"),
        (
            "t.csv",
            "id1,id2,weight\ndog,pet\ncat,pet, 1e-3\ntabby,cat\n",
            " line 3: a third column with the number 1e-3",
        ),
        ("t.edges", "dog pet\n  cat   pet 3\ntabby cat", " line 2: a third column with the number 3"),
        ("t.tsv", "dog\tpet\tis a\t0.5\ncat\tpet\ntabby\tcat\n", " line 1: a fourth column with the number 0.5"),
        ("t.csv", "dog,pet,is a,since,7\ncat,pet\ntabby,cat\n", " line 1: column 5 with the number 7"),
        ("t.edges", "dog pet is_a 2\ncat pet\ntabby cat", " line 1: a fourth column with the number 2"),
        ("t.edgelist", "dog pet {}\ncat pet {'weight': 2}\ntabby cat {}", ": edges have a weight"),
        ("t.gml", 'graph [ directed 1 %s edge [ source 1 target 2 weight "3" ] %s ]', ": edges have a weight"),
        ("t.gml", "graph [ directed 1 %s edge [ source 1 target 2 distance 3 ] %s ]", ": edges have a distance"),
        ("t.gml", "graph [ directed 1 %s edge [ source 1 target 2 value 3 ] %s ]", ": edges have a value"),
    ],
)
def test_weights_are_dropped_only_where_that_is_asked_for(put, name, content, where):
    nodes = "".join(f'node [ id {i} label "{pet}" ]' for i, pet in enumerate(["dog", "pet", "cat", "tabby"], 1))
    edges = "edge [ source 3 target 2 ] edge [ source 4 target 3 ]"
    path = put(name, content % (nodes, edges) if name == "t.gml" else content)
    how = "Pass --unweighted to drop them; objective=distortion takes them for lengths."
    assert refusal(path) == f"{name}{where}, and weights are not read. {how}"
    assert named(read_graph(path, unweighted=True)) == PETS


@pytest.mark.parametrize("kind", ["gml", "graphml", "gexf", "edgelist", "weighted_edgelist"])
def test_weights_of_networkx_are_named(tmp_path, kind):
    graph = nx.DiGraph(PETS)
    nx.set_edge_attributes(graph, 0.5, "weight")
    path = tmp_path / f"t.{kind.removeprefix('weighted_')}"
    getattr(nx, f"write_{kind}")(graph, path)
    assert "Pass --unweighted to drop them; objective=distortion takes them" in refusal(path)
    assert set(named(read_graph(path, unweighted=True))) == set(PETS)


@pytest.mark.parametrize(
    "tree",
    [
        {"pet": {"dog": {}, "cat": ["tabby"]}},
        {"pet": ["dog", {"cat": "tabby"}]},
        [{"pet": {"dog": None, "cat": {"tabby": None}}}],
        {
            "name": "pet",
            "children": [{"name": "dog", "size": 3}, {"name": "cat", "children": [{"name": "tabby", "children": []}]}],
        },
        [{"name": "pet", "children": ["dog", {"name": "cat", "children": ["tabby"]}]}],
    ],
)
def test_nested_json(put, tree):
    graph = read_graph(put("t.json", json.dumps(tree)))
    assert graph.labels == ["pet", "dog", "cat", "tabby"]
    assert named(graph) == PETS


def test_one_label_under_two_parents_is_one_node(put):
    assert named(read_graph(put("t.json", '{"pet": ["dog"], "wolf": {"dog": null}}'))) == [
        ("dog", "pet"),
        ("dog", "wolf"),
    ]
    tree = '[{"name": "pet", "children": [{"name": "dog"}]}, {"name": "wolf", "children": [{"name": "dog"}]}]'
    assert named(read_graph(put("t.json", tree))) == [("dog", "pet"), ("dog", "wolf")]


@pytest.mark.parametrize("kind", ["gml", "graphml", "gexf", "adjlist", "edgelist", "gml.gz", "adjlist.gz"])
@pytest.mark.parametrize("directed", [True, False])
def test_what_networkx_writes(tmp_path, kind, directed):
    written = (nx.DiGraph if directed else nx.Graph)(PETS)
    path = tmp_path / f"t.{kind}"
    getattr(nx, f"write_{kind.split('.')[0]}")(written, path)
    graph = read_graph(path, directed=directed)
    assert {frozenset(edge) for edge in named(graph)} == {frozenset(edge) for edge in PETS}
    assert set(named(graph)) == set(written.edges())
    if kind in ("gml", "graphml", "gexf") and not directed:
        assert refusal(path) == f"t.{kind}: an undirected graph, not a hierarchy. Pass --graph to read it as one."


def test_labels_name_the_nodes_unless_two_are_alike(put):
    nodes = 'node [ id 1 label "é" ] node [ id 2 label "%s" ] node [ id 3 label "c" ]'
    gml = f"graph [ directed 1 {nodes} edge [ source 1 target 2 ] ]"
    assert read_graph(put("t.gml", gml % "b")).labels == ["é", "b", "c"]  # c has no edge
    assert read_graph(put("t.gml", gml % "c")).labels == ["1", "2", "3"]


def test_repeats(put):
    path = put("t.tsv", "a\tb\nc\tb\na\tb\nb\ta\n")
    assert (
        refusal(path)
        == "t.tsv line 3: the edge a -> b stands already in line 1. Remove it, or pass --unique to drop repeats."
    )
    assert refusal(path, unique=True).startswith(
        "t.tsv: a cycle, a -> b -> a; a hierarchy has none. Fix it, or pass --graph"
    )
    assert named(read_graph(path, directed=False, unique=True)) == [("a", "b"), ("c", "b")]
    path = put("t.tsv", "a\tb\nb\ta\n")
    assert (
        refusal(path, directed=False)
        == "t.tsv line 2: the edge b - a stands already in line 1. Remove it, or pass --unique to drop repeats."
    )


def test_adjacency_lists_may_name_both_ends(put):
    path = put("t.adjlist", "a b c\nb a\nc a\nd\n")
    graph = read_graph(path, directed=False)
    assert (named(graph), graph.labels) == ([("a", "b"), ("a", "c")], ["a", "b", "c", "d"])
    assert "a cycle" in refusal(path)


TAB = "an edge needs two (child, parent), separated by a tab."


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "a\tb\n\nb\n", f"t.tsv line 3: one column; {TAB}"),
        ("t.tsv", "a b\n", f"t.tsv line 1: one column; {TAB}"),
        ("t.csv", "a;b\n", "t.csv line 1: one column; an edge needs two (child, parent), separated by a comma."),
        ("t.txt", "a b\nc\n", "t.txt line 2: one column; an edge needs two (child, parent), separated by white space."),
        ("t.tsv", "#\na\tb\nm\tm\n", 't.tsv line 3: "m" is its own parent. Remove the line.'),
        ("t.json", '{"m": ["m"]}', 't.json: "m" is its own parent. Remove the edge.'),
        (
            "t.tsv",
            "a\tb\nb\tc\nc\ta\n",
            "t.tsv: a cycle, a -> b -> c -> a; a hierarchy has none. "
            "Fix it, or pass --graph to read it as an undirected graph.",
        ),
        ("t.tsv", "a\t \n", "t.tsv line 1: an empty label. Fill it in, or remove the edge (a root needs none)."),
        ("t.csv", ",b,c\n", "t.csv line 1: an empty label. Fill it in, or remove the edge (a root needs none)."),
        (
            "t.csv",
            "Parent,Child\n",
            "t.csv line 1: the columns are parent, child; an edge is child, parent. Swap the columns.",
        ),
        (
            "t.csv",
            'a,b\n"c,d\ne,f\n',
            "t.csv line 3: unexpected end of data. Close the quotes, and double those inside a cell.",
        ),
        ("t.txt", "#", "t.txt: no edges. A graph needs at least one."),
        ("t.tsv", "", "t.tsv: no edges. A graph needs at least one."),
        ("t.csv", "child,parent\n# nothing\n", "t.csv: no edges. A graph needs at least one."),
        ("t.json", '{"a": {}}', "t.json: no edges. A graph needs at least one."),
        ("t.tsv", b"a\tb\nc\xe9\tb\n", "t.tsv line 2, byte 2: no UTF-8 text. Save the file as UTF-8."),
        ("t.csv", "a,b\n".encode("utf-16"), "t.csv: UTF-16 text. Save it as UTF-8."),
        (
            "t.csv",
            "a,b\n".encode("utf-16-le"),
            "t.csv line 1: a NUL byte; this is no UTF-8 text. Save the file as UTF-8.",
        ),
        ("t.pkl", "a", f"t.pkl: unknown extension .pkl. Known are {' '.join(EXTENSIONS)}, each also with .gz."),
        ("t", "a", f"t: unknown extension (none). Known are {' '.join(EXTENSIONS)}, each also with .gz."),
        (
            "t.tsv.gz",
            b"a\tb\n",
            "t.tsv.gz: a broken gzip file (Not a gzipped file (b'a\\t')). Compress or download it again.",
        ),
        (
            "t.json",
            '{"a":\n ["b" "c"]}',
            "t.json: no valid JSON (line 2, column 7: Expecting ',' delimiter). Correct it.",
        ),
        (
            "t.json",
            '{"a": ["b"], "a": ["c"]}',
            't.json: no valid JSON (the key "a" stands twice in one object). Correct it.',
        ),
        (
            "t.json",
            '{"a": ["b", "b"]}',
            "t.json: the edge b -> a is there twice. Remove one, or pass --unique to drop repeats.",
        ),
        (
            "t.json",
            '{"a": [1]}',
            "t.json: 1 stands where an object, a list of labels, a label or null should. Write labels as strings.",
        ),
        (
            "t.json",
            '{"name": "a", "children": [{}]}',
            't.json: {} stands where an object with a "name" should. Write labels as strings.',
        ),
        (
            "t.json",
            '{"a":' * 200_000,
            "t.json: nested more than 500 deep. Write it as an edge list (.tsv: child, parent).",
        ),
        ("t.gml", "graph [ directed", "t.gml: no valid gml (expected an int"),
        (
            "t.graphml",
            "<a>",
            "t.graphml: no valid graphml (no element found: line 1, column 3). Correct it, or export it again.",
        ),
    ],
)
def test_mistakes(put, name, content, message):
    assert refusal(put(name, content)).startswith(message)


def test_a_truncated_gzip(put):
    whole = gzip.compress(b"a\tb\n" * 100)
    for name in ("t.tsv.gz", "t.json.gz", "t.graphml.gz"):
        assert "a broken gzip file" in refusal(put(name, whole[:-9]))


def test_no_file(tmp_path):
    assert refusal(tmp_path / "t.tsv") == "t.tsv: no such file. Check the path."
    (tmp_path / "trees").mkdir()
    assert refusal(tmp_path / "trees") == "trees: a directory. Pass one file."
    assert "cannot be read (File name too long)" in refusal(tmp_path / ("t" * 300 + ".tsv"))


def test_without_networkx(put, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    assert (
        refusal(put("t.gml", "")) == "graphs in this format need the package networkx: pip install 'horosphere[graphs]'"
    )


def test_deep_json_is_walked_without_recursion(put, monkeypatch):
    tree: dict = {}
    for i in range(5000):
        tree = {f"n{i}": tree}
    monkeypatch.setattr(read, "parse_json", lambda _: tree)  # as a reader without a limit would return it
    assert len(read_graph(put("t.json", "")).edges) == 4999


def test_a_repeated_key_of_many_is_found_in_time(put):
    keys = ", ".join(f'"k{i}": null' for i in range(60_000))
    path = put("t.json", f'{{"root": {{{keys}, "k59999": null}}}}')
    start = time.process_time()
    assert "k59999" in refusal(path)
    assert time.process_time() - start < 3  # looking back from each key takes a minute


def test_labels_stay_on_their_line_and_obey_nobody(put):
    graph = read_graph(put("t.json", r'{"red\u001b[31m": ["half\ud800", "two\nlines", "joined\u200cup"]}'))
    assert graph.labels == ["red [31m", "half", "two lines", "joined\u200cup"]
    for name, content in (
        ("t.tsv", "a\x1b[2J\ta [2J\n"),
        ("t.json", r'{"a\u001b": [{"\u001b[2J": 1}]}'),
        ("t.json", r'{"a": [["\u001b[2J"]]}'),
        ("t.csv", "a\x1b,b\na\x1b,b\n"),
    ):
        assert all(letter.isprintable() for letter in refusal(put(name, content)))


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    os.mkfifo(tmp_path / f"pipe{kind}")
    (tmp_path / f"zero{kind}").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        assert "no regular file (a pipe or a device)" in refusal(tmp_path / f"{name}{kind}")


def test_a_packed_file_that_explodes_is_refused(put, monkeypatch):
    monkeypatch.setattr("horosphere.foreign.FREELY", 10**5)
    for kind in EXTENSIONS:
        assert "more than 100 times as large" in refusal(put(f"t{kind}.gz", gzip.compress(b" " * 10**7)))


def test_entities_of_xml_do_not_multiply(put):
    """Nine lines that would become a billion words."""
    names = "abcdefghi"
    lines = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(names))
    text = f'<!DOCTYPE graphml [<!ENTITY a "lol">{lines}]><graphml><graph><node id="&i;"/></graph></graphml>'
    start = time.process_time()
    assert "no valid graphml" in refusal(put("t.graphml", text))
    assert time.process_time() - start < 5
    outside = (
        f'<!DOCTYPE g [<!ENTITY x SYSTEM "{put("secret", "1")}">]><graphml><graph><node id="&x;"/></graph></graphml>'
    )
    assert "no valid graphml" in refusal(put("t.graphml", outside))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.binary(max_size=40) | st.text('ab,\t\n"{}[]:# 0', max_size=30).map(str.encode),
    st.sampled_from(EXTENSIONS),
    st.booleans(),
)
@example(b'"a\nb","a\nb"', ".csv", True)
@example(b'{"a\\nb": ["a\\nb"]}', ".json", True)
def test_any_bytes_give_a_graph_or_one_line(put, data, kind, directed):
    try:
        graph = read_graph(put(f"t{kind}", data), directed=directed)
    except UserError as error:
        assert str(error).isprintable()  # noqa: PT017
    else:
        assert len(graph.edges)
        assert len(set(graph.labels)) == len(graph) > 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "dog\tpet\t0.5\ncat\tpet\t2\ntabby\tcat\t1e-3\n"),
        ("t.csv", "child,parent,weight\ndog,pet,0.5\ncat,pet,2\ntabby,cat,1e-3\n"),
        ("t.edges", "dog pet 0.5 far\ncat pet 2\ntabby cat 1e-3"),
    ],
)
def test_weights_are_lengths_where_that_is_asked_for(put, name, content):
    graph = read_graph(put(name, content), weighted=True)
    assert (named(graph), graph.lengths.tolist()) == (PETS, [0.5, 2.0, 1e-3])
    assert read_graph(put(name, content), unweighted=True).lengths is None
    assert read_graph(put("plain.edges", "dog pet\ncat pet"), weighted=True).lengths is None


@pytest.mark.parametrize("kind", ["gml", "graphml", "gexf"])
def test_lengths_of_networkx(tmp_path, kind):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(*pair, length) for pair, length in zip(PETS, (0.5, 2.0, 3.0), strict=True)])
    getattr(nx, f"write_{kind}")(graph, tmp_path / f"t.{kind}")
    read_again = read_graph(tmp_path / f"t.{kind}", weighted=True)
    assert dict(zip(named(read_again), read_again.lengths.tolist(), strict=True)) == dict(
        zip(PETS, (0.5, 2.0, 3.0), strict=True)
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a b 1\nc b 0", "t.edges line 2: an edge of the length 0; lengths are positive"),
        ("a b -1\nc b 1", "t.edges line 1: an edge of the length -1; lengths are positive"),
        ("a b 1\nc b nan", "t.edges line 2: an edge of the length nan; lengths are positive"),
        ("a b 1\nc b inf", "t.edges line 2: an edge of the length inf; lengths are positive"),
        ("a b 1\nc b\n", "t.edges line 2: some edges have a length, and some have none"),
        ("a b\nc b 1\n", "t.edges line 2: some edges have a length, and some have none"),
        ("a b 1 2\n", "t.edges line 1: a fourth column with the number 2, and weights are not read"),
    ],
)
def test_lengths_that_are_none_are_told_with_their_line(put, content, said):
    assert refusal(put("t.edges", content), weighted=True).startswith(said)


def test_lengths_stay_with_their_edges_where_repeats_are_dropped(put):
    graph = read_graph(put("t.edges", "a b 1\na b 5\nc b 2"), weighted=True, unique=True)
    assert (len(graph.edges), graph.lengths.tolist()) == (2, [1.0, 2.0])


def test_strengths_are_no_lengths(tmp_path):
    graph = nx.DiGraph(PETS)
    nx.set_edge_attributes(graph, 0.5, "strength")
    nx.write_gml(graph, tmp_path / "t.gml")
    assert "edges have a strength" in refusal(tmp_path / "t.gml", weighted=True)
