"""The loss is its definition, batches hold exactly the relations, gradients stay finite where it is delicate."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from horosphere.geometry import GEOMETRIES
from horosphere.models.node_embedding import NodeEmbedding, NodeEmbeddingConfig, Relations
from tests.models.reference import loss_of

NODES, DIM = 30, 4


@pytest.fixture(autouse=True)
def _same_points_every_time():
    torch.manual_seed(0)


def random_relations(pairs=60):
    code = np.random.default_rng(0).permutation(NODES * NODES)[:pairs]
    relations = np.stack(np.divmod(code, NODES), axis=1)
    return relations[(relations[:, 0] != relations[:, 1]) & (relations[:, 0] != 7)]  # node 7 has none


def model(name, std=1.0, c=1.0, learn=False):
    return NodeEmbedding(NODES, NodeEmbeddingConfig(name, DIM, c, learn), std=std)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("count", [1, 5, NODES])
def test_loss_is_its_definition(name, count):
    relations, nodes, negatives = random_relations(), torch.tensor([3, 29, 0, 11]), torch.randperm(NODES)[:count]
    m = model(name, c=0.7)
    expected = loss_of(m.points, m.manifold, relations.tolist(), nodes.tolist(), negatives.tolist())
    losses = m(**Relations(relations, NODES).batch(nodes), negatives=negatives)
    assert losses.dtype == torch.float64
    # pairwise is one product: half the digits where points nearly coincide
    assert losses.mean().item() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("shuffled", [False, True])
def test_batches_list_exactly_the_relations(shuffled):
    relations = random_relations()
    table = Relations(relations[np.random.default_rng(1).permutation(len(relations))] if shuffled else relations, NODES)
    nodes = torch.randperm(NODES)[:12]
    batch = table.batch(nodes)
    pairs = sorted(zip(batch["nodes"][batch["row"]].tolist(), batch["related"].tolist(), strict=True))
    assert pairs == sorted((u, v) for u, v in relations.tolist() if u in nodes)
    assert len(table) == len(relations)
    assert table.subjects.tolist() == sorted(set(relations[:, 0].tolist()))


def test_relations_and_the_node_itself_are_no_negatives():
    relations, nodes, negatives = random_relations(), torch.tensor([3, 29, 0, 11]), torch.randperm(NODES)[:17]
    related = {(u, v) for u, v in relations.tolist()}
    excluded = model("lorentz").excluded(**Relations(relations, NODES).batch(nodes), negatives=negatives)
    expected = [[u == n or (u, n) in related for n in negatives.tolist()] for u in nodes.tolist()]
    assert excluded.tolist() == expected


def test_points_of_excluded_negatives_do_not_enter():
    relations = np.array([[0, 1], [0, 2]])
    m, batch = model("lorentz"), Relations(relations, NODES).batch(torch.tensor([0]))
    alone, among = (m(**batch, negatives=torch.tensor(negatives)) for negatives in ([5, 6], [0, 1, 2, 5, 6]))
    assert_close(alone, among, rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(among.sum(), m.table.weight)
    assert gradient.any(1).nonzero()[:, 0].tolist() == [0, 1, 2, 5, 6]


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_node_whose_negatives_are_all_excluded_has_no_loss_and_finite_gradients(name):
    m, table = model(name), Relations(np.array([[0, 1], [3, 2]]), NODES)
    alone = m(**table.batch(torch.tensor([0])), negatives=torch.tensor([0, 1]))
    assert alone.item() == 0
    both = m(**table.batch(torch.tensor([0, 3])), negatives=torch.tensor([0, 1]))
    both.sum().backward()
    assert both.sum() > 0
    assert m.table.weight.grad.isfinite().all()
    assert m.table.weight.grad[3].any()


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("std", [1e-3, 1e-9, 0.0])
def test_gradients_are_finite_where_all_points_start(name, std):
    m = model(name, std=std, learn=True)
    everyone = torch.arange(NODES)
    m(**Relations(random_relations(), NODES).batch(everyone), negatives=everyone).sum().backward()
    for parameter in m.parameters():
        assert parameter.grad.isfinite().all()


def test_the_curvature_is_a_parameter_of_the_model():
    names = dict(model("lorentz", learn=True).named_parameters())
    assert "manifold.log_ratio" in names
    assert "manifold.log_ratio" not in dict(model("lorentz").named_parameters())
