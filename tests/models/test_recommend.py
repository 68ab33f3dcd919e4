"""Recommenders: in flat space the classics' formulas and recbole's numbers, in curved space laws; closed forms."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.geometry import lorentz_to_poincare
from horosphere.models.recommend import (
    AutoRec,
    AutoRecConfig,
    FactorsConfig,
    MatrixFactorisation,
    NeuMF,
    NeuMFConfig,
    RankedFactors,
    RankingConfig,
    ranking_loss,
)
from horosphere.optim import param_groups

USERS, ITEMS, GEOMETRIES = 5, 7, ["euclidean", "lorentz", "poincare"]
MADE = {
    "mf": (MatrixFactorisation, FactorsConfig, {"dim": 4}),
    "mf by distance": (MatrixFactorisation, FactorsConfig, {"dim": 4, "score": "distance"}),
    "bpr": (RankedFactors, RankingConfig, {"dim": 4}),
    "neumf": (NeuMF, NeuMFConfig, {"dim": 4, "hidden": (6, 3)}),
    "autorec": (AutoRec, AutoRecConfig, {"hidden": 4, "dropout": 0.0}),
}
SCORED = [kind for kind in MADE if kind != "autorec"]


def make(kind, geometry="euclidean", seed=0, **changes):
    """In general position: no bias, no time column at its start."""
    cls, config, own = MADE[kind]
    torch.manual_seed(seed)
    model = cls(USERS, ITEMS, 3.5, config(geometry=geometry, **{**own, **changes})).double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "time" not in name and p.ndim == 1:
                p.add_(0.3 * torch.randn_like(p))
            elif name.endswith(("user.weight", "h.weight", "encoder.weight")):
                p.mul_(3)
    return model


def pairs(count=6, width=3):
    random = torch.Generator().manual_seed(1)
    user, item = (
        torch.randint(high, shape, generator=random) for high, shape in ((USERS, (count,)), (ITEMS, (count, width)))
    )
    return user, item


def rows():
    random = torch.Generator().manual_seed(2)
    there = torch.rand(ITEMS, USERS, generator=random) < 0.6
    rated = torch.randint(1, 6, (ITEMS, USERS), generator=random).double()
    return torch.where(there, rated, 0.0), there


def linears(network):
    return [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]


def answer(model, kind):
    return model(rows()[0]) if kind == "autorec" else model(*pairs())


# -- in flat space the classics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mf", "bpr"])
def test_flat_factors_are_inner_products_and_biases(kind):
    model, (user, item) = make(kind), pairs()
    product = (model.user.weight[user][:, None] * model.item.weight[item]).sum(-1)
    assert_close(model(user, item), product + model.user_bias[user][:, None] + model.item_bias[item] + 3.5)


def test_flat_distance_is_minus_the_square():
    model, (user, item) = make("mf by distance"), pairs()
    square = (model.user.weight[user][:, None] - model.item.weight[item]).square().sum(-1)
    assert_close(model(user, item), 3.5 - square + model.user_bias[user][:, None] + model.item_bias[item])


def test_the_printed_form_has_no_mean():
    """12.06 without μ: biases alone must find it."""
    model, (user, item) = make("mf"), pairs()
    printed = model(user, item) - model.mean
    assert (printed < 3).all()


def test_flat_autorec_is_two_linear_maps():
    model, (given, _) = make("autorec"), rows()
    code = torch.sigmoid(F.linear(given, model.encoder.weight, model.encoder.bias))
    assert_close(model(given), F.linear(code, model.decoder.weight, model.decoder.bias), rtol=0, atol=0)


def test_flat_neumf_is_the_product_beside_the_perceptron():
    model, (user, item) = make("neumf"), pairs(width=1)
    u, i = user, item[:, 0]
    product = model.user.weight[u] * model.item.weight[i]
    x = torch.cat([model.user_mlp.weight[u], model.item_mlp.weight[i]], -1)
    for layer in linears(model.mlp):
        x = F.relu(F.linear(x, layer.weight, layer.bias))
    assert_close(model(user, item)[:, 0], model.h(torch.cat([product, x], -1))[:, 0])


def test_flat_neumf_is_recboles():
    """Its forward, with our weights."""
    pytest.importorskip("recbole")
    theirs_class = pytest.importorskip("recbole.model.general_recommender.neumf").NeuMF
    ours, (user, item) = make("neumf"), pairs(width=1)
    theirs = theirs_class.__new__(theirs_class)
    torch.nn.Module.__init__(theirs)
    tables = {"user_mf": ours.user, "item_mf": ours.item, "user_mlp": ours.user_mlp, "item_mlp": ours.item_mlp}
    for name, table in tables.items():
        setattr(theirs, f"{name}_embedding", table)
    layers = pytest.importorskip("recbole.model.layers").MLPLayers([8, 6, 3], 0.0).double()
    theirs_linears = linears(layers)
    for linear, layer in zip(theirs_linears, linears(ours.mlp), strict=True):
        linear.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    theirs.mf_train = theirs.mlp_train = True
    theirs.mlp_layers, theirs.predict_layer = layers, ours.h
    assert_close(theirs.forward(user, item[:, 0]), ours(user, item)[:, 0])


def test_bpr_is_recboles():
    loss = pytest.importorskip("recbole.model.loss").BPRLoss
    scores = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_close(ranking_loss(scores, "bpr"), loss(gamma=0.0)(scores[:, 0], scores[:, 1]))
    model, (user, item) = make("bpr", penalty=0.0), pairs(width=2)
    found = model(user, item)
    assert_close(model.loss(user, item), loss(gamma=0.0)(found[:, 0], found[:, 1]))


def test_ranking_losses_are_torchs():
    scores = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    taken, others = scores[:, :1].expand(-1, 3), scores[:, 1:]
    assert_close(ranking_loss(scores, "hinge", 0.7), F.margin_ranking_loss(taken, others, torch.ones(9, 3), margin=0.7))
    labels = F.one_hot(torch.zeros(9, dtype=torch.long), 4).float()
    assert_close(ranking_loss(scores, "bce"), F.binary_cross_entropy_with_logits(scores, labels))
    assert_close(ranking_loss(scores, "bpr"), F.softplus(others - taken).mean())


# -- closed forms -----------------------------------------------------------------------------------------------------


def test_factors_find_a_matrix_of_low_rank():
    torch.manual_seed(0)
    truth = torch.randn(USERS, 2).double() @ torch.randn(2, ITEMS).double()
    model = make("mf", dim=2, penalty=0.0)
    user, item = (part.flatten() for part in torch.meshgrid(torch.arange(USERS), torch.arange(ITEMS), indexing="ij"))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = model.loss(user, item[:, None], truth[user, item][:, None])
        loss.backward()
        return loss

    optimizer.step(closure)
    assert_close(model.every(torch.arange(USERS)).detach(), truth, rtol=0, atol=1e-3)


def test_the_best_biases_alone_are_damped_means():
    """No factors, one rating each: b = Σ(r - μ)/(1 + λ)/2 for user and item alike."""
    model = MatrixFactorisation(1, 1, 3.0, FactorsConfig(dim=1, penalty=0.5)).double()
    with torch.no_grad():
        for p in (model.user.weight, model.item.weight):
            p.zero_()
    optimizer = torch.optim.SGD([model.user_bias, model.item_bias], lr=0.1)
    one, rating = torch.zeros(1, dtype=torch.long), torch.tensor([[5.0]]).double()
    for _ in range(500):
        optimizer.zero_grad()
        model.loss(one, one[:, None], rating).backward()
        optimizer.step()
    # (2 - a - b)² + ½(a² + b²) is least where a = b and 2(2 - 2a) = a
    assert model.user_bias.item() == pytest.approx(0.8)
    assert model.item_bias.item() == pytest.approx(0.8)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_ratings_that_are_not_there_have_no_gradient(geometry):
    """12.07: squares over what is observed; the notes print a count ‖·‖₀ of all."""
    model, (given, there) = make("autorec", geometry), rows()
    answers = model(given)
    answers.retain_grad()
    loss = torch.where(there, answers - given, 0.0).square().sum(1).mean()
    assert_close(model.loss(given, there), loss)
    loss.backward()
    assert (answers.grad[~there] == 0).all()
    assert (answers.grad[there] != 0).all()
    assert loss.item() == pytest.approx(((answers - given)[there].square().sum() / ITEMS).item())


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_user_nobody_asks_for_has_no_gradient(geometry):
    model, (user, item) = make("mf", geometry), pairs(width=1)
    model.loss(user, item, torch.full((6, 1), 4.0).double()).backward()
    absent = [u for u in range(USERS) if u not in user]
    missing = [i for i in range(ITEMS) if i not in item]
    assert absent
    assert missing
    assert (model.user.weight.grad[absent] == 0).all()
    assert (model.item.weight.grad[missing] == 0).all()
    assert (model.user.weight.grad[user[0]] != 0).any()


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_penalty_is_of_distances_from_the_origin(geometry):
    model, (user, item) = make("bpr", geometry, penalty=0.5), pairs(width=2)
    points = model.manifold.dist0(model.item.weight[item]).square().sum(1)
    normals = model.user.weight[user].square().sum(1)
    biases = model.item_bias[item].square().sum(1) + model.user_bias[user].square()
    assert_close(model.penalty(user, item), 0.5 * (points + normals + biases).mean())


# -- in any geometry --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SCORED)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_scores_of_every_item_are_those_of_pairs(kind, geometry):
    model = make(kind, geometry)
    user = torch.tensor([3, 0])
    item = torch.arange(ITEMS).expand(2, -1)
    assert_close(model.every(user), model(user, item))


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("geometry", GEOMETRIES[1:])
def test_as_curvature_goes_to_nothing_it_is_the_flat_twin(kind, geometry):
    flat = make(kind)
    errors = []
    for c in (1e-4, 1e-5):
        curved = make(kind, geometry, curvature=c)
        state = {name: value.clone() for name, value in flat.state_dict().items()}
        points = [name for module_name, name in point_names(curved) if module_name]
        for name in points:
            state[name] = curved.manifold.lift(state[name])
        curved.load_state_dict(state, strict=False)
        errors.append((answer(curved, kind) - answer(flat, kind)).abs().max().item())
    assert errors[0] < 1e-2
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.05)


def point_names(model):
    for name, module in model.named_modules():
        for own in getattr(module, "point_parameters", ()):
            if not module.manifold.flat:
                yield name, f"{name}.{own}"


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_ball_and_hyperboloid_are_one_model(kind, c):
    sheet, ball = make(kind, "lorentz", curvature=c), make(kind, "poincare", curvature=c)
    state = {name: value.clone() for name, value in sheet.state_dict().items()}
    for _, name in point_names(sheet):
        state[name] = lorentz_to_poincare(state[name], c)
    ball.load_state_dict(dict(state))
    assert_close(answer(ball, kind), answer(sheet, kind))


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_distances_do_not_know_where_the_origin_is(c):
    model, (user, item) = make("mf by distance", "lorentz", curvature=c), pairs()
    before = model(user, item)
    by = model.manifold.lift(torch.randn(4).double())
    with torch.no_grad():
        for table in (model.user, model.item):
            table.weight.copy_(model.manifold.translate(table.weight, by))
    assert_close(model(user, item), before)


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_everything_learns_and_points_are_points(kind, geometry):
    model = make(kind, geometry)
    if kind == "autorec":
        loss = model.loss(*rows())
    elif model.learns == "ratings":
        loss = model.loss(*pairs(width=1), torch.full((6, 1), 4.0).double())
    else:
        loss = model.loss(*pairs())
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
    tables = {"mf": 1, "mf by distance": 2, "bpr": 1, "neumf": 4, "autorec": 0}[kind] * (geometry != "euclidean")
    assert sum(len(group["params"]) for group in param_groups(model) if "manifold" in group) == tables


@pytest.mark.parametrize("kind", SCORED)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients_are_right(kind, geometry):
    model, (user, item) = make(kind, geometry), pairs(2, 2)
    names = [name for name, _ in model.named_parameters()]

    def scores(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (user, item))

    values = [p.detach().clone().requires_grad_() for p in model.parameters()]
    assert torch.autograd.gradcheck(scores, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_other_precisions(geometry, dtype):
    for kind in MADE:
        model = make(kind, geometry).float()
        with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
            found = model(rows()[0].float()) if kind == "autorec" else model(*pairs())
        assert found.isfinite().all()


def test_the_perceptron_has_the_widths_that_are_asked_for():
    model = make("neumf", hidden=(9, 5, 2))
    assert [(layer.in_features, layer.out_features) for layer in linears(model.mlp)] == list(pairwise((8, 9, 5, 2)))
