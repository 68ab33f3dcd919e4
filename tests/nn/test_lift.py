"""`Lift` suits features to the curvature, says so when it cannot, and remembers."""

import copy
import pickle
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from horosphere.nn import Classifier, Lift, Linear
from horosphere.nn.near import farthest, has_values, in_radii, require_near

CURVED = [Lorentz(c=0.1), Lorentz(c=4.0), Poincare(c=4.0), Lorentz(c=2.0, learn=True)]


def features(rows=50, width=64, length=8.0, seed=0):
    v = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    return length * v / v.norm(dim=-1).mean()


@pytest.mark.parametrize("m", CURVED, ids=str)
@pytest.mark.parametrize("length", [0.01, 8.0, 1e4])
def test_the_mean_feature_is_put_two_radii_out(m, length):
    v = features(length=length)
    x = Lift(m)(v)
    assert float((m.dist0(x) * m.c**0.5).mean().detach()) == pytest.approx(2.0, rel=1e-5)
    torch.testing.assert_close(nn.functional.normalize(m.lower(x), dim=-1), nn.functional.normalize(v, dim=-1))


def test_a_scale_of_features_is_a_curvature():
    """Law H2: lift at curvature c of v is lift at curvature 1 of √c·v, over √c."""
    v = features().double() / 8
    torch.testing.assert_close(Lift(Lorentz(c=4.0), 1.0)(v), Lift(Lorentz(), 2.0)(v) / 2)


def test_each_curved_factor_has_its_own_scale_and_flat_ones_none():
    m = Product((Lorentz(c=4.0), 3), (Euclidean(), 2), (Poincare(c=0.5), 4), weights=(2.0, 1.0, 3.0))
    v = torch.cat([features(20, 3, 100.0), features(20, 2, 7.0), features(20, 4, 0.01)], -1)
    lift = Lift(m)
    parts = m.split(lift(v))
    for part, factor in ((parts[0], m.factors[0]), (parts[2], m.factors[2])):
        torch.testing.assert_close((factor.dist0(part) * factor.c**0.5).mean(), torch.tensor(2.0))
    torch.testing.assert_close(parts[1], v[:, 3:5])
    assert lift.scale.shape == (3,)


def test_flat_space_is_the_identity_whatever_the_scale():
    v = features(length=1e30)
    for scale in ("matched", 0.5):
        lift = Lift(Euclidean(), scale)
        assert lift(v) is v
        assert lift.fit(v).eval()(v) is v
        assert not lift.state_dict()


def test_the_first_batch_decides_once():
    lift = Lift(Lorentz())
    lift(features(length=5.0))
    scale = lift.scale.clone()
    lift(features(length=50.0))
    assert torch.equal(lift.scale, scale)
    torch.testing.assert_close(scale, torch.tensor([0.4]))


def test_zeros_decide_nothing():
    lift = Lift(Lorentz())
    assert not lift(torch.zeros(4, 64)).any()
    lift(features(length=5.0))
    torch.testing.assert_close(lift.scale, torch.tensor([0.4]))


@pytest.mark.parametrize("how", ["load_state_dict", "in place", "deepcopy"])
def test_the_scale_travels(how):
    lift, v = Lift(Lorentz()), features()
    lift(v)
    if how == "deepcopy":
        other = copy.deepcopy(lift)
    else:
        other = Lift(Lorentz())
        if how == "load_state_dict":
            other.load_state_dict(lift.state_dict())
        else:  # as the engine resumes
            other.state_dict()["scale"].copy_(lift.scale)
    new = features(length=80.0, seed=1)
    assert torch.equal(other(new), lift(new))
    assert torch.equal(other.eval()(new), lift.eval()(new))


def test_a_scale_that_is_not_known_can_be_loaded_over_one_that_is():
    lift = Lift(Lorentz())
    lift(features(length=5.0))
    lift.load_state_dict(Lift(Lorentz()).state_dict())
    lift(features(length=10.0))
    torch.testing.assert_close(lift.scale, torch.tensor([0.2]))


def test_reset_forgets():
    lift = Lift(Lorentz())
    lift(features(length=5.0))
    lift.reset_parameters()
    lift(features(length=10.0))
    torch.testing.assert_close(lift.scale, torch.tensor([0.2]))


def test_eval_before_training_is_said():
    with pytest.raises(UserError, match=r"train it, call fit\(features\), or load its weights"):
        Lift(Lorentz()).eval()(features())


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf"), "unit"])
def test_scales_that_are_none(scale):
    with pytest.raises(UserError, match="give a positive number"):
        Lift(Lorentz(), scale)


def test_features_without_a_length():
    with pytest.raises(UserError, match="not finite"):
        Lift(Lorentz())(torch.full((2, 3), torch.nan))
    with pytest.raises(UserError, match="leave scale= out"):
        Lift(Lorentz(), 1.0).fit(features())


# Features that lie too far out


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_points_are_finite_up_to_the_end(dtype):
    m = Lorentz()
    v = torch.zeros(1, 4, dtype=dtype)
    v[0, 0] = 0.99 * farthest(dtype)
    require_near(v, m)
    x = Lift(m, 1.0)(v)
    assert x.isfinite().all()
    assert Linear(4, 2, m).to(dtype)(x).isfinite().all() or dtype == torch.float16
    with pytest.raises(UserError, match="leave scale= out"):
        Lift(m, 1.0)(1.02 * v)


@pytest.mark.parametrize("begun", [False, True], ids=["first batch", "later batch"])
def test_one_long_feature_among_many_is_seen(begun):
    v = features()
    lift = Lift(Lorentz(c=4.0), 1.0)
    if begun:
        lift(v)
    v[7] *= 10
    with pytest.raises(UserError, match="radii of curvature"):
        lift(v)


@pytest.mark.parametrize("how", ["trained", "fitted", "loaded", "evaluated", "copied"])
def test_a_later_batch_far_longer_than_the_first_is_said(how):
    """It was -inf, then NaN."""
    lift, v = Lift(Lorentz()), features()
    lift.fit(v) if how == "fitted" else lift(v)
    if how == "loaded":
        known, lift = lift.state_dict(), Lift(Lorentz())
        lift.load_state_dict(known)
    elif how == "copied":
        lift = pickle.loads(pickle.dumps(copy.deepcopy(lift)))
    lift.train(how != "evaluated")
    assert lift(2 * v).isfinite().all()
    with pytest.raises(UserError) as error:
        lift(50 * v)
    assert str(error.value).endswith("; its scale is matched to far shorter ones: fit(features) matches it again")


def test_where_there_is_room_later_batches_pass():
    for lift in (Lift(Lorentz()), Lift(Product((Lorentz(), 60), (Euclidean(), 4)), 1.0), Lift(Poincare(), 0.1)):
        for length in (1.0, 10.0, 0.0):
            assert lift(features(length=length)).isfinite().all()
        assert lift(torch.zeros(0, 64)).shape == (0, 64)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_gpu_says_it_a_call_later_and_never_waits():
    lift, v = Lift(Lorentz()).cuda(), features().cuda()
    lift(v)
    with synced("error"):  # whatever would wait is refused
        for _ in range(50):
            lift(v)
        lift(50 * v)
    torch.cuda.synchronize()
    with pytest.raises(UserError, match="radii of curvature out"):
        lift(v)
    assert lift(v).isfinite().all()


@contextmanager
def synced(mode):
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_radii_of_a_product_are_its_farthest_factors():
    m = Product((Lorentz(c=4.0), 1), (Euclidean(), 1), (Poincare(c=1.0), 1), weights=(4.0, 1.0, 1.0))
    torch.testing.assert_close(in_radii(torch.tensor([3.0, 100.0, 2.0]), m), torch.tensor(3.0))


def test_wine_as_it_comes_trains():
    """Norms of several hundred: at c = 1 without a scale they overflow, and the loss was NaN."""
    load_wine = pytest.importorskip("sklearn.datasets").load_wine
    x, y = (torch.tensor(part) for part in load_wine(return_X_y=True))
    x, L = x.float(), Lorentz()
    with pytest.raises(UserError, match="radii of curvature"):
        Lift(L, scale=1.0)(x)
    torch.manual_seed(0)
    net = nn.Sequential(Lift(L), Linear(13, 16, L), nn.ReLU(), Classifier(16, 3, L))
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in net.parameters())


# Where values cannot be read


def test_one_graph_holds_it_before_and_after_the_first_batch():
    v = features()
    lift = Lift(Lorentz())
    compiled = torch.compile(lift, fullgraph=True, backend="eager")
    first, second = compiled(v), compiled(2 * v)
    eager = Lift(Lorentz())
    torch.testing.assert_close(first, eager(v))
    torch.testing.assert_close(second, eager(2 * v))
    assert torch.equal(lift.scale, eager.scale)


def test_a_compiled_step_keeps_a_scale_that_was_resumed():
    lift = Lift(Lorentz())
    lift.scale.fill_(0.25)  # in place, as the engine resumes
    torch.compile(lift, fullgraph=True, backend="eager")(features(length=5.0))
    assert lift.scale.item() == 0.25


def test_compiled_code_does_not_look():
    far = features(length=1e3)
    torch.compile(Lift(Lorentz(), 1.0), fullgraph=True, backend="eager")(far)  # overflows, and says nothing


def test_meta_and_fake_tensors_pass():
    with torch.device("meta"):
        assert Lift(Lorentz())(torch.ones(2, 3)).shape == (2, 3)
        assert Lift(Lorentz(), 1.0)(torch.ones(2, 3)).shape == (2, 3)
    with FakeTensorMode():
        v = torch.ones(2, 3)
        assert not has_values(v)
        assert Lift(Lorentz(), 1.0)(v).shape == (2, 3)


def test_maps_of_torch_func():
    v = features()
    with pytest.raises(UserError, match=r"call its fit\(features\) before"):
        torch.vmap(Lift(Lorentz()))(v)
    lift = Lift(Lorentz()).fit(v)
    torch.testing.assert_close(torch.vmap(lift)(v), lift(v))
    torch.testing.assert_close(torch.vmap(Lift(Lorentz(), 1.0))(v), Lift(Lorentz(), 1.0)(v))


# Several processes


def worker(rank, address, queue):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.set_num_threads(1)
    lift = Lift(Lorentz())
    lift(features().split((20, 30))[rank])
    queue.put((rank, lift.scale.item()))
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_agree_on_the_scale_of_the_whole_batch(tmp_path):
    context = mp.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=worker, args=(rank, f"file://{tmp_path}/meet", queue)) for rank in (0, 1)]
    for process in processes:
        process.start()
    scales = dict(queue.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    assert scales[0] == scales[1] == pytest.approx(Lift(Lorentz()).fit(features()).scale.item())


@pytest.mark.parametrize("manifold", [Lorentz(0.5), Poincare(2.0)])
def test_longer_features_are_drawn_in_to_the_reach_and_shorter_ones_are_left(manifold):
    torch.manual_seed(0)
    v = torch.randn(6, 4, dtype=torch.float64) * torch.tensor([[0.0], [0.1], [1.0], [3.0], [30.0], [3e8]])
    plain, near = Lift(manifold, scale=1.0), Lift(manifold, scale=1.0, reach=4.0)
    radii = manifold.dist0(near(v)) * manifold.c**0.5
    expected = (v.norm(dim=-1) * manifold.c**0.5).clamp(max=4.0)
    torch.testing.assert_close(radii, expected)
    inside = expected < 4.0
    torch.testing.assert_close(near(v)[inside], plain(v[inside]))
    assert torch.autograd.gradcheck(near, v[:-1].clone().requires_grad_())


@pytest.mark.parametrize(("reach", "said"), [(0.0, "reach=0.0; give a positive"), (float("nan"), "reach=nan; give")])
def test_a_wrong_reach_is_named(reach, said):
    with pytest.raises(UserError, match=said):
        Lift(Lorentz(), reach=reach)
    with pytest.raises(UserError, match="on a product"):
        Lift(Product((Lorentz(), 2), (Poincare(), 2)), reach=8.0)
