"""Word vectors: their losses are the textbook's, in every geometry; in flat space they are word2vec's and GloVe's."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from horosphere.geometry import Lorentz, lorentz_to_poincare
from horosphere.models.words import (
    CBOW,
    FastText,
    FastTextConfig,
    GloVe,
    GloVeConfig,
    SkipGram,
    SkipGramConfig,
    n_grams,
)
from horosphere.nn.losses import masked_bce

WORDS, COUNTS = ["the", "cat", "sat", "on", "mat"], [9, 4, 3, 2, 1]
CENTRE = torch.tensor([1, -1, 0, 2])
CONTEXT = torch.tensor([[0, 2, -1, 4], [-1, -1, -1, -1], [-1, 1, -1, -1], [0, 0, 3, 1]])
SHARED = torch.tensor([0, 3, 0])
geometries = pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
scores = pytest.mark.parametrize("score", ["hyperplane", "distance"])


def made(kind=SkipGram, std=0.5, **changes):
    """A model with parameters in general position."""
    config = {SkipGram: SkipGramConfig, CBOW: SkipGramConfig, FastText: FastTextConfig, GloVe: GloVeConfig}[kind]
    if kind is FastText:
        changes.setdefault("buckets", 40)
    torch.manual_seed(0)
    model = kind(WORDS, COUNTS, config(dim=3, **changes)).double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = std * torch.randn(p.shape, dtype=torch.float64)
            is_point = name in ("centre.weight", "context.table.weight")
            p.copy_(model.manifold.lift(noise) if is_point else noise)
    return model


def own_noise(k=2, contexts=CONTEXT):
    """A row for each context that is there."""
    random = torch.Generator().manual_seed(1)
    return torch.randint(len(WORDS), (int((contexts >= 0).sum()), k), generator=random)


def all_scores(model):
    """Of all words with all contexts.   -> (V, V)"""
    count = len(model.context.bias if hasattr(model.context, "table") else model.context.weight)
    own = model.centre.weight if isinstance(model, GloVe) else model.vectors()
    return against(model, own, torch.arange(count))


def against(model, x, contexts):
    return model.context.rows(contexts).against(x, torch.arange(len(contexts)))


# -- skip-gram --------------------------------------------------------------------------------------------------------


@scores
@geometries
def test_skip_gram_is_masked_binary_cross_entropy(geometry, score):
    model, noise = made(geometry=geometry, score=score), own_noise()
    table, expected = all_scores(model), 0.0
    assert (noise == CONTEXT[CONTEXT >= 0].unsqueeze(-1)).any()  # some noise is the target, and left out
    for (i, j), wrong in zip((CONTEXT >= 0).nonzero().tolist(), noise, strict=True):
        logits = table[CENTRE[i], torch.cat([CONTEXT[i, j : j + 1], wrong])]
        mask = torch.cat([torch.ones(1), wrong != CONTEXT[i, j]])
        expected += masked_bce(logits, torch.tensor([1, 0, 0]), mask) * mask.sum()
    torch.testing.assert_close(model(CENTRE, CONTEXT, noise), expected)


@scores
@geometries
def test_shared_noise_counts_as_many_for_each_pair(geometry, score):
    model = made(geometry=geometry, score=score, negatives=6)
    table, expected = all_scores(model), 0.0
    for i, j in (CONTEXT >= 0).nonzero().tolist():
        own = table[CENTRE[i]]
        expected += F.softplus(-own[CONTEXT[i, j]]) + 6 * F.softplus(own[SHARED]).mean()
    torch.testing.assert_close(model(CENTRE, CONTEXT, SHARED), expected)


@scores
@geometries
def test_gradients_by_differences(geometry, score):
    model = made(geometry=geometry, score=score)
    names, leaves = zip(*model.named_parameters(), strict=True)
    for noise in (SHARED, own_noise()):

        def loss(*values, noise=noise):
            return torch.func.functional_call(
                model, dict(zip(names, values, strict=True)), (CENTRE, CONTEXT, noise), strict=False
            )

        assert torch.autograd.gradcheck(loss, leaves, atol=1e-4)


def test_in_flat_space_scores_are_inner_products():
    model = made()
    torch.testing.assert_close(all_scores(model), model.centre.weight @ model.context.weight.T)


@pytest.mark.parametrize("kind", [SkipGram, CBOW, FastText])
def test_a_row_without_neighbours_changes_nothing(kind):
    model, some = made(kind), torch.tensor([0, 2, 3])
    torch.testing.assert_close(model(CENTRE, CONTEXT, SHARED), model(CENTRE[some], CONTEXT[some], SHARED))
    nothing = model(CENTRE[1:2], CONTEXT[1:2], SHARED)
    assert nothing.item() == 0
    nothing.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("kind", [SkipGram, CBOW, FastText])
@scores
def test_the_sum_over_rows_is_the_sum_of_its_parts(kind, score):
    model, noise = made(kind, score=score), own_noise()
    by_row = noise.split((CONTEXT >= 0).sum(-1).tolist())
    for drawn, own in ((SHARED, [SHARED] * 4), (noise, by_row)):
        parts = [model(CENTRE[i : i + 1], CONTEXT[i : i + 1], own[i]) for i in range(4)]
        torch.testing.assert_close(model(CENTRE, CONTEXT, drawn), sum(parts))


@pytest.mark.parametrize("kind", [SkipGram, CBOW, FastText])
@pytest.mark.parametrize("curved", ["lorentz", "poincare"])
def test_without_curvature_it_is_the_flat_one(kind, curved):
    """The error is of order c."""
    flat = made(kind)(CENTRE, CONTEXT, SHARED)
    large, small = (made(kind, geometry=curved, curvature=c)(CENTRE, CONTEXT, SHARED) - flat for c in (1e-3, 1e-5))
    assert abs(small) < 0.02 * abs(large)


@pytest.mark.parametrize("kind", [SkipGram, CBOW, FastText, GloVe])
@scores
@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_on_the_ball_it_is_that_of_the_hyperboloid(kind, score, c):
    ball = made(kind, geometry="poincare", curvature=c, score=score)
    other = made(kind, geometry="lorentz", curvature=c, score=score)
    batch = (
        (CENTRE, CONTEXT, SHARED) if kind is not GloVe else (SHARED, SHARED, torch.tensor([1.0, 9.0, 200.0]).double())
    )
    torch.testing.assert_close(lorentz_to_poincare(other.centre.weight, c), ball.centre.weight)
    torch.testing.assert_close(ball(*batch), other(*batch))
    torch.testing.assert_close(lorentz_to_poincare(other.vectors(), c), ball.vectors())


def test_the_gradient_of_a_softmax_is_the_word_less_its_expectation():
    """d log P(o|c)/dv_c = u_o - Σ_j P(j|c) u_j"""
    model = made()
    v = model.centre.weight[1].detach().requires_grad_()
    logits = against(model, v[None], torch.arange(5))[0]
    (gradient,) = torch.autograd.grad(logits.log_softmax(0)[3], v)
    u = model.context.weight
    torch.testing.assert_close(gradient, (u[3] - logits.softmax(0) @ u).detach())


def test_its_minimum_is_the_shifted_pmi():
    """Levy & Goldberg 2014: x·w = log(#(w, c)·D/(#w·#c)) - log k, with noise by counts."""
    times = torch.tensor([[0, 6, 3], [6, 0, 4], [3, 4, 2]])
    pairs = [(i, j) for i in range(3) for j in range(3) for _ in range(times[i, j])]
    centre, context = torch.tensor([i for i, _ in pairs]), torch.tensor([[j] for _, j in pairs])
    times = times.double() + 1e-300
    noise = torch.tensor([j for _, j in pairs])  # each context as often as it is one
    torch.manual_seed(0)
    model = SkipGram(WORDS[:3], [9, 10, 9], SkipGramConfig(dim=3, negatives=2)).double()
    torch.nn.init.normal_(model.context.weight)
    torch.nn.init.normal_(model.centre.weight)
    descent = torch.optim.LBFGS(model.parameters(), max_iter=400, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        descent.zero_grad()
        loss = model(centre, context, noise)
        loss.backward()
        return loss

    descent.step(closure)
    pmi = (times * times.sum() / times.sum(0) / times.sum(1, keepdim=True)).log() - math.log(2)
    met = times > 0.5
    torch.testing.assert_close(all_scores(model)[met], pmi[met], rtol=0, atol=1e-3)


# -- the tree ---------------------------------------------------------------------------------------------------------


@scores
@geometries
def test_probabilities_of_the_tree_sum_to_one(geometry, score):
    model = made(geometry=geometry, score=score, output="tree")
    log_p = model.tree_log_probabilities(model.vectors())
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(5, dtype=torch.float64))
    row, target = torch.tensor([0, 3, 3]), torch.tensor([4, 0, 2])
    torch.testing.assert_close(model.loss(model.vectors(), row, target, SHARED), -log_p[row, target].sum())


@pytest.mark.parametrize("kind", [SkipGram, CBOW, FastText])
def test_a_tree_learns(kind):
    model = made(kind, output="tree", geometry="lorentz")
    assert model(CENTRE, CONTEXT, SHARED).isfinite()
    model(CENTRE, CONTEXT, SHARED).backward()
    assert model.context.weight.grad.abs().sum() > 0


# -- CBOW and fastText ------------------------------------------------------------------------------------------------


@geometries
def test_cbow_predicts_from_the_midpoint(geometry):
    model, noise = made(CBOW, geometry=geometry), own_noise()
    x = model.manifold.midpoint(model.centre(torch.tensor([0, 2, 4])))[None]
    target, wrong = torch.tensor([1]), noise[0]
    expected = F.softplus(-against(model, x, target)).sum()
    expected += F.softplus(against(model, x, wrong[wrong != 1])).sum()
    torch.testing.assert_close(model(CENTRE[:1], CONTEXT[:1], noise[:3]), expected)


def test_n_grams_of_where():
    assert list(n_grams("where", 3, 3)) == ["<wh", "whe", "her", "ere", "re>"]
    assert len(list(n_grams("where"))) == 5 + 4 + 3 + 2
    assert list(n_grams("a", 3, 6)) == []  # <a> is the word itself


def test_n_grams_and_their_hashes_are_gensims():
    inner = pytest.importorskip("gensim.models.fasttext_inner")
    model = made(FastText, buckets=97)
    for word in ("where", "größer", "猫", "internationalisation"):
        theirs = inner.compute_ngrams_bytes(word, 3, 6)
        marked = f"<{word}>".encode()
        assert [gram.encode() for gram in sorted(n_grams(word))] == sorted(
            (g for g in theirs if g != marked), key=bytes.decode
        )
        rows = [len(WORDS) + inner.ft_hash_bytes(gram.encode()) % 97 for gram in n_grams(word)]
        assert model.parts(word) == rows


@geometries
def test_words_are_midpoints_of_their_parts_seen_or_not(geometry):
    model = made(FastText, geometry=geometry)
    torch.testing.assert_close(model.points(torch.tensor([1]))[0], midpoint(model, [1, *model.parts("cat")]))
    torch.testing.assert_close(model.point_of("cats"), midpoint(model, model.parts("cats")))
    assert model.point_of("x") is None


def midpoint(model, rows):
    return model.manifold.midpoint(model.centre(torch.tensor(rows)))


# -- GloVe ------------------------------------------------------------------------------------------------------------


@geometries
def test_glove_is_zero_where_counts_are_its_own(geometry):
    """Counts whose logarithms are scores and biases: in flat space, a matrix of rank d and two vectors."""
    model = made(GloVe, geometry=geometry)
    word, context = (t.flatten() for t in torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij"))
    counts = (all_scores(model) + model.bias[:, None]).exp().detach().flatten()
    loss = model(word, context, counts)
    assert loss.item() < 1e-25
    model = made(GloVe, geometry=geometry, std=0.1)  # and from elsewhere it gets there
    descent = torch.optim.LBFGS(model.parameters(), max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure():
        descent.zero_grad()
        loss = model(word, context, counts)
        loss.backward()
        return loss

    before = closure().item()
    if geometry == "euclidean":  # points of the others are moved by Riemannian optimizers
        descent.step(closure)
        assert closure().item() < 1e-6 * before


def test_glove_weighs_rare_pairs_less():
    model = made(GloVe)
    score = (all_scores(model) + model.bias[:, None])[1, 2].item()
    for count, weight in ((0.5, 0.005**0.75), (50.0, 0.5**0.75), (100.0, 1.0), (900.0, 1.0)):
        loss = model(torch.tensor([1]), torch.tensor([2]), torch.tensor([count], dtype=torch.float64))
        assert loss.item() == pytest.approx(weight * (score - math.log(count)) ** 2)


def test_vectors_of_glove_are_the_sum_of_both_tables():
    model = made(GloVe)
    torch.testing.assert_close(model.vectors(), model.centre.weight + model.context.weight)
    curved = made(GloVe, geometry="lorentz")
    torch.testing.assert_close(curved.manifold.lower(curved.vectors()), model.vectors())


# -- starts -----------------------------------------------------------------------------------------------------------


@geometries
def test_it_starts_as_word2vec_does(geometry):
    config = SkipGramConfig(dim=50, geometry=geometry)
    model = SkipGram([str(i) for i in range(400)], np.arange(400, 0, -1), config)
    assert model.manifold.lower(model.vectors()).std().item() == pytest.approx(
        0.5 / 50 / math.sqrt(3), rel=0.1
    )  # of U(±1/2d)
    assert not model.context.weight.any()
    assert model.manifold.flat or isinstance(model.manifold, type(config.manifold()))


def test_a_start_at_zero_learns_in_curved_space():
    model = SkipGram(WORDS, COUNTS, SkipGramConfig(dim=3, geometry="lorentz"))
    torch.nn.init.normal_(model.centre.weight)
    model(CENTRE, CONTEXT, SHARED).backward()
    flat = replace(model.config, geometry="euclidean")
    twin = SkipGram(WORDS, COUNTS, flat)
    twin.centre.weight.data.copy_(model.centre.weight)
    twin(CENTRE, CONTEXT, SHARED).backward()
    torch.testing.assert_close(model.context.weight.grad, twin.context.weight.grad)  # planes of no weight are flat
    assert Lorentz().dist0(model.vectors()).isfinite().all()
