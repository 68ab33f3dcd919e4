"""Scores of classifiers: torchmetrics, torch and networkx say the same."""

from dataclasses import dataclass, field
from itertools import pairwise

import networkx
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from horosphere.data.augment import Augmentation, normalise
from horosphere.data.classes import ClassTree
from horosphere.data.images import open_images
from horosphere.errors import UserError
from horosphere.evaluate import classification
from horosphere.evaluate.classification import HierarchyScores, Judged, hierarchy_scores
from tests.data.pictures import write_npz

accuracy = pytest.importorskip("torchmetrics.functional.classification").multiclass_accuracy
CPU = torch.device("cpu")
GROUPS = [0, 0, 0, 1, 1, 2, 2, 2, 3]
K = len(GROUPS)


@pytest.fixture(params=[0, 1, 2])
def seed(request):
    return request.param


def answers(seed, rows=64, classes=K):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=generator), torch.randint(classes, (rows,), generator=generator)


def judged(tree, *batches):
    judge = Judged(tree, CPU)
    for logits, truth, counted in batches:
        judge.add(logits, truth, counted)
    return judge


def random_tree(seed, classes=K, inner=7):
    """Any shape: leaves at different depths, nodes with one child."""
    rng = np.random.default_rng(seed)
    own = [-1, *(int(rng.integers(node)) for node in range(1, inner))]  # of inner nodes, the root first
    parents = [*(int(rng.integers(inner)) for _ in range(classes)), *own]
    return ClassTree(np.array([p if p < 0 else p + classes for p in parents]), classes)


def test_accuracies_are_those_of_torchmetrics_and_the_loss_that_of_torch(seed):
    logits, truth = answers(seed)
    judge = judged(None, (logits, truth, torch.ones(64, dtype=torch.bool)))
    assert judge.scores(judge.sums()) == pytest.approx(
        {
            "loss": F.cross_entropy(logits, truth).item(),
            "top1": accuracy(logits, truth, K, average="micro").item(),
            "top5": accuracy(logits, truth, K, average="micro", top_k=5).item(),
        },
        rel=1e-6,
    )


@pytest.mark.parametrize("classes", [1, 3])
def test_of_few_classes_all_are_among_the_best_five(classes):
    logits, truth = answers(0, classes=classes)
    judge = judged(None, (logits, truth, torch.ones(64, dtype=torch.bool)))
    assert judge.scores(judge.sums())["top5"] == 1


def test_batches_and_processes_add_up_and_fillers_count_for_nothing(seed):
    tree = ClassTree.of_groups(GROUPS)
    logits, truth = answers(seed)
    whole = judged(tree, (logits, truth, torch.ones(64, dtype=torch.bool)))
    noise, other = answers(seed + 99, rows=6)
    noise[0], noise[1, 2] = torch.nan, torch.inf
    nothing = torch.zeros(6, dtype=torch.bool)
    ones = [torch.ones(n, dtype=torch.bool) for n in (40, 24)]
    filled = (torch.cat([logits[40:], noise]), torch.cat([truth[40:], other]), torch.cat([ones[1], nothing]))
    first, second = judged(tree, (logits[:40], truth[:40], ones[0])), judged(tree, filled, (noise, other, nothing))
    assert second.sums()[-1] == 24
    assert whole.scores(first.sums() + second.sums()) == pytest.approx(whole.scores(whole.sums()), rel=1e-6)


def test_a_process_that_only_filled_up_adds_nothing():
    noise, truth = answers(0, rows=5)
    judge = judged(ClassTree.of_groups(GROUPS), (noise, truth, torch.zeros(5, dtype=torch.bool)))
    assert judge.sums().tolist() == [0.0] * 6


def test_distances_are_those_of_the_graph(seed):
    tree = random_tree(seed)
    graph = networkx.Graph([(node, int(parent)) for node, parent in enumerate(tree.parents) if parent >= 0])
    logits, truth = answers(seed)
    predicted = logits.argmax(1)
    pairs = list(zip(predicted.tolist(), truth.tolist(), strict=True))
    edges = [networkx.shortest_path_length(graph, a, b) for a, b in pairs]
    found = hierarchy_scores(predicted, truth, tree)
    assert found.fine == np.mean([a == b for a, b in pairs])
    assert found.coarse == np.mean([tree.parents[a] == tree.parents[b] for a, b in pairs])
    assert found.tree_error == pytest.approx(np.mean(edges))
    assert found.mistake == pytest.approx(np.mean([edge for edge in edges if edge]))
    down = networkx.DiGraph([(int(parent), node) for node, parent in enumerate(tree.parents) if parent >= 0])
    shared = [networkx.lowest_common_ancestor(down, a, b) for a, b in pairs if a != b]
    heights = [max(networkx.single_source_shortest_path_length(down, node).values()) for node in shared]
    assert found.ancestor == pytest.approx(np.mean(heights))


def test_the_order_of_samples_and_the_side_of_the_truth_do_not_matter(seed):
    tree = random_tree(seed)
    logits, truth = answers(seed)
    predicted, order = logits.argmax(1).numpy(), np.random.default_rng(seed).permutation(64)
    found = hierarchy_scores(predicted, truth, tree)
    assert hierarchy_scores(predicted[order], truth.numpy()[order], tree) == found
    assert hierarchy_scores(truth, predicted, tree) == found


def test_the_truth_is_perfect_and_a_sibling_costs_less_than_a_stranger():
    tree = ClassTree.of_groups(GROUPS)
    truth = np.zeros(4, dtype=int)
    perfect = hierarchy_scores(truth, truth, tree)
    assert (perfect, perfect.mistake) == (HierarchyScores(1.0, 1.0, 0.0, 0.0), 0.0)
    costs = [hierarchy_scores(np.full(4, answer), truth, tree).tree_error for answer in (0, 1, 3)]
    assert all(a < b for a, b in pairwise(costs))


@dataclass
class Share:
    """One of several processes; `sums` holds what it gives to the others."""

    rank: int
    size: int
    device = CPU
    sums: list = field(default_factory=list)

    def sum(self, values):
        self.sums.append(values.clone())
        return values


@pytest.mark.parametrize(("rows", "size"), [(256, 1), (256, 2), (3, 1), (3, 2), (3, 4)])
def test_processes_share_the_pictures_and_none_is_counted_twice(tmp_path, monkeypatch, rows, size):
    monkeypatch.setattr(classification, "EVAL_ROWS", rows)
    write_npz(tmp_path / "a.npz", coarse_of_fine=np.array([0, 0, 1, 1]), test=15)
    data, how = open_images(str(tmp_path / "a.npz")), Augmentation(crop="none")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).eval()
    shares = [Share(rank, size) for rank in range(size)]
    for share in shares:
        classification.judge_pictures(model, data, 8, how, share)
    sums, answers = (sum(parts) for parts in zip(*(share.sums for share in shares), strict=True))
    pixels = torch.from_numpy(np.load(tmp_path / "a.npz")["test_images"]).movedim(-1, 1)
    logits, truth = model(normalise(pixels)).double(), torch.from_numpy(data.valid.labels)
    assert sums[-1] == 15
    assert (sums[0] / 15).item() == pytest.approx(F.cross_entropy(logits, truth).item(), rel=1e-5)
    expected = torch.stack([logits[truth == k].sum(0) for k in range(4)])
    torch.testing.assert_close(answers, torch.cat([expected, truth.bincount()[:, None].double()], 1))


@pytest.mark.parametrize(
    ("predicted", "truth", "said"),
    [
        ([0, 9], [0, 0], "class 9 in a tree of 9"),
        ([0, 1], [0, -1], "class -1 in a tree of 9"),
        ([0], [0, 0], r"predictions \(1,\) and truths \(2,\)"),
        ([], [], "at least one"),
        ([[0]], [[0]], r"predictions \(1, 1\)"),
    ],
)
def test_what_cannot_be_judged_is_refused(predicted, truth, said):
    with pytest.raises(UserError, match=said):
        hierarchy_scores(np.array(predicted, dtype=int), np.array(truth, dtype=int), ClassTree.of_groups(GROUPS))
