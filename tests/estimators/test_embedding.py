"""`HyperbolicEmbedding`: graphs of every kind become the same points, and new nodes find their place."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import torch

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

from horosphere.errors import UserError
from horosphere.estimators import HyperbolicEmbedding
from horosphere.measure import reconstruction
from horosphere.runs import Run
from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe
from horosphere.train.training import train

nx = pytest.importorskip("networkx")
SHORT = {"dim": 3, "epochs": 60, "random_state": 0}
TREE = nx.balanced_tree(3, 3)  # 40 nodes
PARENTS = [(max(edge), min(edge)) for edge in TREE.edges()]  # (child, parent)
# those that fit no table: a graph is none, and so the rest of scikit-learn's checks cannot apply
WITHOUT_DATA = (
    *("check_estimator_cloneable", "check_estimator_repr", "check_no_attributes_set_in_init"),
    *("check_get_params_invariance", "check_set_params", "check_parameters_default_constructible"),
    *("check_valid_tag_types", "check_estimator_tags_renamed"),
)


@pytest.fixture(scope="module")
def fitted():
    return HyperbolicEmbedding(**SHORT).fit(PARENTS)


@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_scikit_learns_checks_that_need_no_table(name):
    getattr(estimator_checks, name)("HyperbolicEmbedding", HyperbolicEmbedding())


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_scikit_learn_knows_that_it_takes_no_tables():
    assert all(result["status"] == "passed" for result in check_estimator(HyperbolicEmbedding(), on_skip=None))


def test_points_know_their_tree():
    model = HyperbolicEmbedding(dim=5, random_state=0).fit(PARENTS)
    points = torch.from_numpy(model.embedding_)
    assert reconstruction(points, model.manifold_, model.graph_.relations()).map > 0.9
    depth, radius = model.graph_.depth(), model.manifold_.dist0(points).numpy()
    assert radius[depth == 0].mean() < radius[depth == 3].mean()


def test_they_are_those_of_the_command_line(fitted, tmp_path):
    tree = tmp_path / "tree.tsv"
    tree.write_text("".join(f"{child}\t{parent}\n" for child, parent in PARENTS))
    asked = [f"data={tree}", f"seed={fitted._seed}", "dim=3", "epochs=60"]
    train(Recipe.read("embedding", asked), Place(tmp_path / "run", quiet=True), "cpu")
    run = Run.open(tmp_path / "run").load()
    assert run.labels == [str(node) for node in fitted.nodes_]
    assert np.array_equal(run.points.numpy(), fitted.embedding_)


def test_every_kind_of_graph_gives_the_same_points(fitted):
    order = sorted(range(40), key=lambda i: fitted.nodes_[i])
    directed = nx.DiGraph(PARENTS)
    matrix = nx.to_scipy_sparse_array(directed, nodelist=range(40), format="csr")
    by_number = HyperbolicEmbedding(**SHORT).fit(np.array(PARENTS))
    assert by_number.nodes_ == list(range(40))
    assert np.array_equal(HyperbolicEmbedding(**SHORT).fit(matrix).embedding_, by_number.embedding_)
    same = HyperbolicEmbedding(**SHORT).fit(directed)
    assert same.nodes_ == fitted.nodes_
    assert np.array_equal(same.embedding_, fitted.embedding_)
    assert [fitted.nodes_[i] for i in order] == by_number.nodes_


def test_undirected_graphs():
    by_graph = HyperbolicEmbedding(**SHORT).fit(TREE)
    assert not by_graph.graph_.directed
    for given in (nx.to_scipy_sparse_array(TREE), scipy.sparse.coo_matrix(nx.to_numpy_array(TREE))):
        other = HyperbolicEmbedding(**SHORT).fit(given)
        assert not other.graph_.directed
        assert np.array_equal(other.embedding_, by_graph.embedding_)
    assert not HyperbolicEmbedding(**SHORT, directed=False).fit(np.array(PARENTS)).graph_.directed
    one_way = scipy.sparse.triu(nx.to_scipy_sparse_array(TREE))
    assert HyperbolicEmbedding(**SHORT, directed=False).fit(one_way).graph_.edges.shape == (39, 2)


def test_new_nodes_find_the_place_that_training_would_give_them():
    """Leaves that were left out lie nearer to their parent than to any other inner node of its depth."""
    left_out = [(child, parent) for child, parent in PARENTS if child >= 13 and child % 3 == 0]
    kept = [pair for pair in PARENTS if pair not in left_out]
    model = HyperbolicEmbedding(**(SHORT | {"epochs": 200})).fit(kept)
    new = torch.from_numpy(model.transform([[parent] for _, parent in left_out]))
    assert new.shape == (9, 3)
    middle = [i for i, node in enumerate(model.nodes_) if 4 <= node < 13]
    nearest = model.manifold_.pairwise(new, torch.from_numpy(model.embedding_[middle])).argmin(1)
    assert [model.nodes_[middle[i]] for i in nearest] == [parent for _, parent in left_out]


def test_it_is_deterministic_cloned_piped_and_pickled(fitted):
    again = clone(fitted).fit(PARENTS)
    assert np.array_equal(again.embedding_, fitted.embedding_)
    other = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(other.transform([[3], [4, 5]]), fitted.transform([[3], [4, 5]]))
    assert np.array_equal(make_pipeline(clone(fitted)).fit_transform(PARENTS), fitted.embedding_)
    assert not np.array_equal(clone(fitted).set_params(random_state=1).fit(PARENTS).embedding_, fitted.embedding_)


WEIGHTED = nx.Graph()
WEIGHTED.add_edge(0, 1, weight=2.5)


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (WEIGHTED, {}, "weight 2.5, and weights are not read"),
        (scipy.sparse.csr_array([[0, 2], [0, 0]]), {}, "weight 2, and weights are not read"),
        (scipy.sparse.csr_array((2, 3)), {}, "square"),
        (np.zeros((4, 3)), {}, "is no graph; give a networkx graph"),
        (7, {}, "int is no graph"),
        ([("a", "b", "c")], {}, "is no edge; give pairs"),
        (["ab"], {}, "is no edge"),
        ([], {}, "no edges"),
        ([("a", "b"), ("b", "a")], {}, "pass directed=False"),
        ([("a", "a")], {}, "itself"),
        (TREE, {"directed": True}, "undirected"),
        (PARENTS, {"geometry": "torus"}, "unknown geometry"),
        (PARENTS, {"dim": 0}, "dim"),
        ([(None, "a"), ("b", "a")], {}, "^None is no name of a node; leave out the edges that have none$"),
        ([("b", "a"), (float("nan"), "a")], {}, "^nan is no name of a node"),
        ([(np.float32("nan"), 1)], {}, "nan is no name of a node"),
        (np.array([[np.nan, 1.0], [2.0, 1.0]]), {}, "^nan is no name of a node"),
        (np.array([["a", None]], dtype=object), {}, "^None is no name of a node"),
        (nx.DiGraph([(float("nan"), 1)]), {}, "^nan is no name of a node"),
        ([("", "a")], {}, "^an empty text is no name of a node"),
        (PARENTS, {"directed": "no"}, "^directed=no: it should be True, False or None$"),
    ],
)
def test_what_is_no_graph_is_said(given, settings, message):
    with pytest.raises(UserError, match=message):
        HyperbolicEmbedding(**(SHORT | settings)).fit(given)


def test_new_nodes_that_have_no_place(fitted):
    for given, message in (
        ([["3"]], "no node"),
        ([[["3"]]], "no node"),
        ([[]], "no neighbours"),
        (["3"], "no list"),
        ([3], "no list"),
        (
            None,
            r"^transform: NoneType is no list of new nodes; give \[\[…\], \[…\]\], of each the nodes it is related to$",
        ),
        ("3", "^transform: str is no list"),
    ):
        with pytest.raises(UserError, match=message):
            fitted.transform(given)
    with pytest.raises(NotFittedError):
        HyperbolicEmbedding().transform([[0]])
