"""Checkpoints come back bit by bit, are whole or absent, and never half-loaded."""

import hashlib
import json
import shutil

import pytest
import torch
from safetensors.torch import save as to_bytes
from torch import nn

from horosphere.errors import UserError
from horosphere.geometry import Lorentz
from horosphere.nn import Embedding
from horosphere.optim import RiemannianAdam, param_groups
from horosphere.runs import checkpoints, latest
from horosphere.train import checkpoint
from horosphere.train.checkpoint import forget, model_tensors, optimizer_tensors, read_state, restore, save
from horosphere.train.distributed import World
from tests.train.toy_task import full_disk


class Everything(nn.Module):
    """What a model may hold: points, a learned scalar, tied and frozen weights, half precision, any kind of buffer."""

    def __init__(self, seed=0, width=3):
        super().__init__()
        torch.manual_seed(seed)
        self.table = Embedding(5, width, Lorentz(learn=True))
        self.head = nn.Linear(width, 5)
        self.tied = nn.Linear(width, 5, bias=False)
        self.tied.weight = self.head.weight
        self.rounded = nn.Parameter(torch.randn(4, 2).bfloat16())
        self.frozen = nn.Parameter(torch.randn(2), requires_grad=False)
        self.crossed = nn.Parameter(torch.randn(3, 4).t())  # not contiguous
        self.idle = nn.Parameter(torch.randn(2))  # never gets a gradient, so the optimizer keeps nothing of it
        self.register_buffer("count", torch.tensor(seed))
        self.register_buffer("mask", torch.tensor([True, False, bool(seed)]))
        self.register_buffer("passing", torch.randn(2), persistent=False)

    def step(self, optimizer):
        out = self.head(self.table.weight) + self.tied(self.table.weight**2)
        (
            out.square().sum()
            + self.table.manifold.dist0(self.table.weight).sum()
            + self.rounded.float().sum()
            + self.crossed.square().sum()
        ).backward()
        optimizer.step()
        optimizer.zero_grad()


def made(seed=0, width=3, steps=2):
    model = Everything(seed, width)
    optimizer = RiemannianAdam(param_groups(model, 0.1), lr=0.1)
    for _ in range(steps):
        model.step(optimizer)
    return model, optimizer


def write(folder, model, optimizer, step=10, keep=2, **notes):
    path = save(folder, model, optimizer, World(), {"step": step, **notes})
    forget(folder, keep)
    return path


def bits(model, optimizer):
    """Everything a checkpoint holds, as it is now."""
    tensors = {**model_tensors(model), **{f"optimizer.{k}": v for k, v in optimizer_tensors(model, optimizer).items()}}
    return {name: t.detach().clone() for name, t in tensors.items()}


def assert_same_bits(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert torch.equal(a[name], b[name]), name


@pytest.fixture
def saved(tmp_path):
    model, optimizer = made()
    return write(tmp_path, model, optimizer, note="kept"), model, optimizer


@pytest.mark.parametrize("file_bytes", [2 * 10**9, 100, 1])
def test_a_checkpoint_comes_back_bit_by_bit(tmp_path, monkeypatch, file_bytes):
    monkeypatch.setattr(checkpoint, "FILE_BYTES", file_bytes)
    model, optimizer = made()
    path = write(tmp_path, model, optimizer, note="kept")
    assert path == latest(tmp_path) == tmp_path / "step-00000010"
    assert (len(list(path.glob("model-*"))) > 1) == (file_bytes < 1000)
    other, again = made(seed=1, steps=3)
    state = restore(path, other, World(), again)
    assert (state["step"], state["note"], state["processes"]) == (10, "kept", 1)
    assert_same_bits(bits(other, again), bits(model, optimizer))
    assert other.tied.weight is other.head.weight
    for m, o in ((model, optimizer), (other, again)):
        m.step(o)  # and the next step is the same
    assert_same_bits(bits(other, again), bits(model, optimizer))


def test_a_file_is_full_before_the_next_is_begun(monkeypatch):
    tensors = {name: torch.zeros(count) for name, count in (("a", 5), ("b", 3), ("c", 7), ("d", 1), ("e", 20))}
    for most, parts in (
        (32, ["ab", "cd", "e"]),
        (31, ["a", "b", "c", "d", "e"]),
        (144, ["abcde"]),
        (143, ["abcd", "e"]),
    ):
        monkeypatch.setattr(checkpoint, "FILE_BYTES", most)
        assert ["".join(part) for part in checkpoint._parts(tensors)] == parts


def test_weights_alone_can_be_read(saved):
    path, model, _ = saved
    other = Everything(seed=1)
    restore(path, other, World())
    assert_same_bits(model_tensors(other), model_tensors(model))


def test_only_safetensors_and_json(saved):
    assert {p.suffix for p in saved[0].iterdir()} == {".safetensors", ".json"}
    names = {p.name for p in saved[0].iterdir()}
    assert names == {"model-00001-of-00001.safetensors", "optimizer-00001-of-00001.safetensors", "state.json"}
    assert set(json.loads((saved[0] / "state.json").read_text())["files"]) == names - {"state.json"}


def test_only_the_newest_are_kept(tmp_path):
    model, optimizer = made()
    for step in (5, 99_999_999, 100_000_000, 7 * 10**8):
        write(tmp_path, model, optimizer, step, keep=2)
    assert {p.name for p in tmp_path.iterdir()} == {"step-100000000", "step-700000000"}
    assert latest(tmp_path).name == "step-700000000"


def test_who_is_killed_while_removing_leaves_no_half_checkpoint_in_sight(tmp_path, monkeypatch):
    model, optimizer = made()
    for step in (1, 2):
        write(tmp_path, model, optimizer, step)

    def killed(path, **_):
        next(path.iterdir()).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        forget(tmp_path, keep=1)
    monkeypatch.undo()
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000002"]
    write(tmp_path, model, optimizer, 3)
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000002", "step-00000003"}


def test_without_a_checkpoint_there_is_none(tmp_path):
    assert latest(tmp_path / "absent") is None
    (tmp_path / ".step-00000003.partial").mkdir()
    (tmp_path / "step-best").mkdir()
    assert latest(tmp_path) is None


def test_what_killed_runs_leave_is_not_read_and_goes(saved, tmp_path):
    path, model, optimizer = saved
    shutil.copytree(path, tmp_path / ".step-00000012.partial")
    assert latest(tmp_path) == path
    write(tmp_path, model, optimizer, 14)
    assert {p.name for p in tmp_path.iterdir()} == {"step-00000010", "step-00000014"}


@pytest.mark.parametrize("file", ["model-*", "optimizer-*", "state.json"])
def test_a_full_disk_leaves_what_was_there(saved, tmp_path, file):
    path, model, optimizer = saved
    before = bits(model, optimizer)
    with full_disk(file), pytest.raises(UserError, match=r"step-00000012.*: cannot be written \(No space left"):
        write(tmp_path, model, optimizer, 12)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000010"]
    other, again = made(seed=1)
    restore(path, other, World(), again)
    assert_same_bits(bits(other, again), before)


# -- damage -----------------------------------------------------------------------------------------------------------


def cut(path, share):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def replace(path, content):
    """Another content, and state.json agrees with it."""
    path.write_bytes(content)
    state = json.loads((path.parent / "state.json").read_text())
    state["files"][path.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path.parent / "state.json").write_text(json.dumps(state))


def listed(state, name):
    """Another file in the list of state.json."""
    content = json.loads(state.read_text())
    content["files"][name] = next(iter(content["files"].values()))
    state.write_text(json.dumps(content))


DAMAGE = [
    *[
        (f"{kind}-00001-of-00001.safetensors", harm)
        for kind in ("model", "optimizer")
        for harm in ("empty", "half", "flip", "gone", "lie")
    ],
    *[("state.json", harm) for harm in ("empty", "half", "gone", "list", "keys", "elsewhere", "deep")],
]


@pytest.mark.parametrize(("file", "harm"), DAMAGE)
def test_damage_is_named_and_nothing_is_loaded(saved, tmp_path, file, harm):
    write(tmp_path, *saved[1:], 20)
    target = tmp_path / "step-00000020" / file
    {
        "empty": lambda: target.write_bytes(b""),
        "half": lambda: cut(target, 0.5),
        "flip": lambda: flip(target),
        "gone": target.unlink,
        "lie": lambda: replace(target, b"\xff" * 64),
        "list": lambda: target.write_text("[]"),
        "keys": lambda: target.write_text('{"files": {"a": 1}}'),
        "elsewhere": lambda: listed(target, "../../stolen.safetensors"),
        "deep": lambda: target.write_text("[" * 200_000),
    }[harm]()
    other, again = made(seed=1, steps=1)
    before = bits(other, again)
    newest = latest(tmp_path)
    assert newest == target.parent  # never silently an older one
    with pytest.raises(UserError) as error:
        restore(newest, other, World(), again)
    message = str(error.value)
    assert message.startswith(f"{target}: a damaged checkpoint (")
    assert message.endswith(f"delete {target.parent} to go on from step-00000010")
    assert "\n" not in message
    assert_same_bits(bits(other, again), before)


def renamed(model):
    model.other = model.head
    del model.head


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed, "tied.weight is absent there"),
        (
            lambda m: m.register_parameter("more", nn.Parameter(torch.zeros(2))),
            "more is absent there and float32 (2,) here",
        ),
        (lambda m: delattr(m, "rounded"), "rounded is bfloat16 (4, 2) there and absent here"),
        (
            lambda m: setattr(m, "rounded", nn.Parameter(m.rounded.float())),
            "rounded is bfloat16 (4, 2) there and float32 (4, 2) here",
        ),
        (
            lambda m: setattr(m, "rounded", nn.Parameter(m.rounded.T.clone())),
            "rounded is bfloat16 (4, 2) there and bfloat16 (2, 4) here",
        ),
        (lambda m: m.register_buffer("count", torch.zeros(3)), "count is int64 () there and float32 (3,) here"),
    ],
)
def test_another_model_is_told_apart(saved, change, said):
    other = Everything(seed=1)
    change(other)
    before = {name: t.detach().clone() for name, t in model_tensors(other).items()}
    with pytest.raises(UserError) as error:
        restore(saved[0], other, World())
    assert str(error.value).startswith(f"{saved[0]}: a checkpoint of another run (")
    assert said in str(error.value)
    assert_same_bits(model_tensors(other), before)


def test_another_recipe_is_told_apart(tmp_path):
    model, optimizer = made()
    path = write(tmp_path, model, optimizer, recipe="one")
    restore(path, model, World(), optimizer, recipe="one")
    with pytest.raises(UserError, match="made by another recipe"):
        restore(path, model, World(), optimizer, recipe="two")


def test_an_optimizer_of_another_model_is_told_apart(saved):
    path, model, optimizer = saved
    replace(path / "optimizer-00001-of-00001.safetensors", to_bytes({"exp_avg.nothing": torch.zeros(2)}))
    with pytest.raises(UserError, match=r"its optimizer keeps exp_avg\.nothing"):
        restore(path, model, World(), optimizer)


def test_a_sound_checkpoint_says_what_it_is(saved):
    assert read_state(saved[0])["step"] == 10
