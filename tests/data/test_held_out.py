"""Relations that are held out: the share that was asked for, the same each time, and no node is cut off."""

import networkx as nx
import numpy as np
import pytest

from horosphere.data import Graph
from horosphere.data.held_out import hold_out
from horosphere.errors import UserError

TREE = Graph([f"n{i}" for i in range(63)], np.array([(i, (i - 1) // 2) for i in range(1, 63)]))
RING = Graph([str(i) for i in range(12)], np.array([(i, (i + 1) % 12) for i in range(12)]), directed=False)
PARTS = np.array([(1, 0), (2, 0), (2, 1), (4, 3), (5, 3), (5, 4)])  # two closures, and node 6 alone


def parts_of(pairs, nodes):
    graph = nx.Graph(pairs.tolist())
    graph.add_nodes_from(range(nodes))
    return {frozenset(part) for part in nx.connected_components(graph)}


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_stay_as_connected_as_they_were(share, seed):
    pairs = TREE.closure()
    learned, held = hold_out(pairs, share, 63, seed)
    assert len(held) == round(share * len(pairs))
    assert sorted(map(tuple, np.concatenate([learned, held]).tolist())) == sorted(map(tuple, pairs.tolist()))
    assert parts_of(learned, 63) == parts_of(pairs, 63)


def test_parts_stay_parts():
    learned, held = hold_out(PARTS, 1 / 3, 7)
    assert len(held) == 2
    assert parts_of(learned, 7) == parts_of(PARTS, 7) == {frozenset({0, 1, 2}), frozenset({3, 4, 5}), frozenset({6})}


def test_a_link_without_direction_goes_both_ways_or_not_at_all():
    learned, held = hold_out(RING.relations(), 0.05, 12)
    assert (len(learned), len(held)) == (22, 2)
    assert held[0].tolist() == held[1][::-1].tolist()


def test_a_seed_decides():
    pairs = TREE.closure()
    first, again, other = (hold_out(pairs, 0.2, 63, seed)[1] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_cannot_go_is_told_with_the_way_on():
    with pytest.raises(UserError, match=r"holdout=0.1: only 0 of 62 relations can go .* \(on=closure\)"):
        hold_out(TREE.edges, 0.1, 63)
    with pytest.raises(UserError, match=r"holdout=0.9: only 196 of 258 relations .*; hold out 0.759 or less"):
        hold_out(TREE.closure(), 0.9, 63)
    assert len(hold_out(TREE.closure(), 0.759, 63)[1]) == 196
