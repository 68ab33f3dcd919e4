"""Graph against networkx, on random hierarchies and on WordNet."""

import re
import tracemalloc
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.data import Graph, read_graph
from horosphere.data import graph as module
from horosphere.errors import UserError

TREES = Path(__file__).parents[3] / "shared" / "data" / "trees"
needs_trees = pytest.mark.skipif(not TREES.is_dir(), reason=f"no WordNet hierarchies in {TREES}")
quick = settings(max_examples=50, deadline=None)  # the first example imports scipy


@st.composite
def graphs(draw, directed=None):
    """Edges that follow a random order of the nodes, so that none closes a cycle."""
    n = draw(st.integers(1, 12))
    order = draw(st.permutations(range(n)))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] < pair[1])
    edges = draw(st.lists(pairs, unique=True, max_size=25)) if n > 1 else []
    directed = draw(st.booleans()) if directed is None else directed
    return Graph(
        [f"n{i}" for i in range(n)],
        np.array([(order[a], order[b]) for a, b in edges], dtype=np.int64).reshape(-1, 2),
        directed,
    )


def as_networkx(graph: Graph) -> nx.DiGraph:
    result = nx.DiGraph(graph.edges.tolist())
    result.add_nodes_from(range(len(graph)))
    return result


def hierarchy(n: int, edges) -> Graph:
    return Graph([f"n{i}" for i in range(n)], np.array(edges, dtype=np.int64).reshape(-1, 2))


@quick
@given(graphs(directed=True))
def test_closure_is_every_ancestor_in_order(graph):
    closure = graph.closure()
    assert closure.dtype == np.int64
    assert closure.tolist() == sorted(map(list, nx.transitive_closure_dag(as_networkx(graph)).edges()))


def peak_of(work):
    """Bytes in use at once, at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_closure_that_memory_cannot_hold_is_refused_before_it_is_made():
    nodes = np.arange(100_000)
    chain = hierarchy(len(nodes), np.stack([nodes[1:], nodes[:-1]], axis=1))

    def ask():
        with pytest.raises(UserError, match=r"has 4,999,950,000 pairs .* at most 100,000,000\..*--on edges"):
            chain.closure()

    assert peak_of(ask) < 50_000_000


def test_a_closure_is_counted_while_it_is_made(monkeypatch):
    """Each node lies below the one before it and below the root: one step from the root, with many ancestors."""
    monkeypatch.setattr(module, "RELATIONS", 100_000)
    rows = range(2, 5000)
    shortcuts = hierarchy(5000, [(1, 0), *((i, i - 1) for i in rows), *((i, 0) for i in rows)])

    def ask():
        with pytest.raises(UserError, match=r"has more than 100,000 pairs .*--on edges"):
            shortcuts.closure()

    assert peak_of(ask) < 5_000_000
    small = hierarchy(447, [(i, i - 1) for i in range(1, 447)])
    assert len(small.closure()) == 99_681  # 446·447/2


@quick
@given(graphs(directed=True))
def test_closure_of_the_closure_is_itself(graph):
    closure = graph.closure()
    assert np.array_equal(Graph(graph.labels, closure).closure(), closure)


@quick
@given(graphs(directed=True))
def test_depth_is_the_nearest_root(graph):
    reference = as_networkx(graph)
    roots = [node for node in reference if reference.out_degree(node) == 0]
    nearest = nx.multi_source_dijkstra_path_length(reference.reverse(), roots)
    assert graph.depth().tolist() == [nearest[node] for node in range(len(graph))]


@quick
@given(graphs())
def test_distances_are_shortest_paths(graph):
    lengths = graph.distances(np.arange(len(graph)))
    reference = dict(nx.all_pairs_shortest_path_length(as_networkx(graph).to_undirected()))
    assert lengths.dtype == np.float32
    assert lengths.tolist() == [[reference[a].get(b, np.inf) for b in range(len(graph))] for a in range(len(graph))]


@quick
@given(graphs())
def test_adjacency_is_symmetric_and_counts_each_edge_twice(graph):
    adjacency = graph.adjacency().toarray()
    assert (adjacency == adjacency.T).all()
    assert set(np.unique(adjacency)) <= {0, 1}
    assert adjacency.sum() == 2 * len(graph.edges)


@quick
@given(graphs())
def test_relations(graph):
    both = sorted([*graph.edges.tolist(), *graph.edges[:, ::-1].tolist()])
    assert graph.relations().tolist() == (graph.closure().tolist() if graph.directed else both)


@quick
@given(graphs(), st.lists(st.integers(0, 11), max_size=5))
def test_distances_follow_their_sources(graph, picked):
    picked = np.array([i % len(graph) for i in picked], dtype=np.int64)
    assert np.array_equal(graph.distances(picked), graph.distances(np.arange(len(graph)))[picked])


def test_a_long_chain_needs_no_recursion():
    n = 2000
    chain = hierarchy(n, np.stack([np.arange(1, n), np.arange(n - 1)], axis=1))
    assert chain.depth().tolist() == chain.distances([0])[0].tolist() == list(range(n))
    assert len(chain.closure()) == n * (n - 1) // 2


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 1), (1, 2), (2, 0)], "a cycle, n0 -> n1 -> n2 -> n0;"),
        ([(3, 1), (1, 2), (2, 1)], "a cycle, n1 -> n2 -> n1;"),
        ([(i, (i + 1) % 9) for i in range(9)], "a cycle, n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> … -> n0;"),
        ([(1, 1)], '"n1" has an edge to itself'),
        ([(0, 1), (2, 1), (0, 1)], "n0 -> n1 is there twice"),
        ([(0, 9)], "node 9, but there are 9 labels"),
        ([(0, -1)], "node -1, but"),
    ],
)
def test_bad_edges(edges, message):
    with pytest.raises(UserError, match=re.escape(message)):
        hierarchy(9, edges)


def test_an_undirected_graph_has_no_ancestors_but_may_have_cycles():
    ring = Graph(list("abc"), np.array([(0, 1), (1, 2), (2, 0)]), directed=False)
    for ask in (ring.closure, ring.depth):
        with pytest.raises(UserError, match="undirected"):
            ask()
    with pytest.raises(UserError, match="twice"):
        Graph(list("abc"), np.array([(0, 1), (1, 0)]), directed=False)


def test_repr_is_short():
    assert repr(hierarchy(5000, [(0, 1)])) == "Graph(5000 nodes, 1 edges, directed)"


@pytest.mark.parametrize("content", ["{}", "[1]", '["a", null]', "[", "", "null", "[NaN]", '{"a": 1}'])
def test_labels_of_another_kind_are_named(tmp_path, content):
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(UserError, match=r"labels\.json: a damaged file .*; embed the graph again"):
        module.read_labels(tmp_path)


@needs_trees
def test_mammal_closure_is_the_published_one():
    mammals, published = read_graph(TREES / "mammal_hypernyms.tsv"), read_graph(TREES / "mammal_closure.tsv")
    assert {(mammals.labels[a], mammals.labels[b]) for a, b in mammals.closure()} == {
        (published.labels[a], published.labels[b]) for a, b in published.edges
    }


@needs_trees
def test_noun_closure():
    nouns = read_graph(TREES / "noun_hypernyms.tsv.gz")
    assert (len(nouns), len(nouns.edges), len(nouns.closure())) == (82115, 84427, 743241)
    assert np.flatnonzero(nouns.depth() == 0).tolist() == [nouns.labels.index("entity.n.01")]


# -- around one node --------------------------------------------------------------------------------------------------


@quick
@given(graphs(directed=True))
def test_kin_are_those_of_networkx(graph):
    other = as_networkx(graph)
    depth, roots = graph.depth(), {node for node in other if not other.out_degree(node)}
    assert graph.several_parents() == sum(other.out_degree(node) > 1 for node in other)
    for node in range(len(graph)):
        above = nx.descendants(other, node)  # edges point from a child to its parent
        assert sorted(graph.parents_of(node)) == sorted(other.successors(node))
        assert sorted(graph.children_of(node)) == sorted(other.predecessors(node))
        assert graph.linked_to(node) == sorted(nx.all_neighbors(other, node))
        assert sorted(graph.ancestors_of(node)) == sorted(above)
        steps = [nx.shortest_path_length(other, node, ancestor) for ancestor in graph.ancestors_of(node)]
        assert steps == sorted(steps)
        path = graph.path_up(node)
        assert (path[0], len(path)) == (node, depth[node] + 1)
        assert path[-1] in roots
        assert all(other.has_edge(*step) for step in pairwise(path))
        for second in set(range(len(graph))) - {node}:
            assert graph.kinship(node, second) == kinship(other, node, second)


def kinship(graph, node, other):
    if graph.has_edge(node, other):
        return "parent"
    if graph.has_edge(other, node):
        return "child"
    if nx.has_path(graph, node, other):
        return "ancestor"
    if nx.has_path(graph, other, node):
        return "descendant"
    return "sibling" if set(graph.successors(node)) & set(graph.successors(other)) else ""


@pytest.mark.parametrize("directed", [True, False])
def test_edges_come_back(tmp_path, directed):
    graph = Graph(["a", "b", "c"], np.array([(1, 0), (2, 0), (2, 1)]), directed)
    assert module.read_edges(tmp_path, graph.labels, directed) is None
    module.write_edges(tmp_path, graph)
    again = module.read_edges(tmp_path, graph.labels, directed)
    assert np.array_equal(again.edges, graph.edges)
    assert again.directed == directed
    with pytest.raises(UserError, match=r"edges.safetensors: damaged or foreign edges .*an edge names node 2"):
        module.read_edges(tmp_path, ["a", "b"], directed)


@quick
@given(graphs(), st.data())
def test_distances_add_lengths_up(graph, data):
    lengths = data.draw(st.lists(st.floats(0.1, 10), min_size=len(graph.edges), max_size=len(graph.edges)))
    long = Graph(graph.labels, graph.edges, graph.directed, np.array(lengths))
    oracle = nx.Graph()
    oracle.add_nodes_from(range(len(graph)))
    oracle.add_weighted_edges_from([(a, b, w) for (a, b), w in zip(graph.edges.tolist(), lengths, strict=True)])
    expected = np.full((len(graph), len(graph)), np.inf)
    for source, reached in nx.all_pairs_dijkstra_path_length(oracle):
        expected[source, list(reached)] = list(reached.values())
    np.testing.assert_allclose(long.distances(np.arange(len(graph))), expected, rtol=1e-6)


def test_lengths_come_back(tmp_path):
    graph = Graph(["a", "b", "c"], [(0, 1), (2, 1)], lengths=[0.5, 2.0])
    module.write_edges(tmp_path, graph)
    again = module.read_edges(tmp_path, graph.labels, True)
    assert again.lengths.tolist() == [0.5, 2.0]
    module.write_edges(tmp_path, Graph(["a", "b"], [(0, 1)]))
    assert module.read_edges(tmp_path, ["a", "b"], True).lengths is None


@pytest.mark.parametrize(("lengths", "said"), [([1.0, 0.0], "c -> b has the length 0"), ([1.0], "for 2 edges")])
def test_bad_lengths(lengths, said):
    with pytest.raises(UserError, match=said):
        Graph(["a", "b", "c"], [(0, 1), (2, 1)], lengths=lengths)
