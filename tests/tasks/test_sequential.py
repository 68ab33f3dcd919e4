"""A sequential partition of a text: each row of a batch goes on where it stopped, with its state."""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from horosphere.data.tokens import SequentialWindows, TokenFile
from horosphere.errors import UserError
from horosphere.models.carried import Carried
from horosphere.runs import Run
from horosphere.train.distributed import World
from tests.models.test_recurrent import GEOMETRIES, make
from tests.tasks.test_every_task import live, refused
from tests.tasks.tiny import run_tiny, tiny, write_text

CELLS = ("rnn", "gru", "lstm")


def stream(numbers, bos=0):
    tokens = np.asarray(numbers)
    return TokenFile(tokens, bos, vocab_size=int(tokens.max()) + 1, text_bytes=len(tokens), documents=1)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "cats.txt")


# -- windows ----------------------------------------------------------------------------------------------------------


def textbook(tokens, batch, length, offset):
    """d2l's `seq_data_iter_sequential`, its offset given: inputs and targets (batch, length) of each step."""
    count = (len(tokens) - offset - 1) // batch * batch
    x = np.reshape(tokens[offset : offset + count], (batch, -1))
    y = np.reshape(tokens[offset + 1 : offset + 1 + count], (batch, -1))
    steps = x.shape[1] // length * length
    return [(x[:, i : i + length], y[:, i : i + length]) for i in range(0, steps, length)]


@pytest.mark.parametrize(("size", "length", "rows"), [(100, 8, 2), (101, 7, 3), (33, 8, 4), (34, 8, 4), (60, 1, 5)])
@pytest.mark.parametrize("seed", [0, 1])
def test_windows_are_the_textbooks(size, length, rows, seed):
    windows = SequentialWindows(stream(range(size)), length, rows, seed)
    offsets = set()
    for epoch in range(5):
        offset = int(windows.batch(epoch * windows.count)[0, 0])
        offsets.add(offset)
        assert offset < length
        expected = textbook(np.arange(size), rows, length, offset)
        assert windows.count <= len(expected) <= windows.count + 1  # each epoch has as many steps
        for place, (x, y) in enumerate(expected[: windows.count]):
            step = epoch * windows.count + place
            batch = windows.batch(step).numpy()
            assert np.array_equal(batch[:, :-1], x)
            assert np.array_equal(batch[:, 1:], y)
            assert windows.begins_at(step) == (place == 0)
    assert len(offsets) > 1 or size == 33 or length == 1  # 33 tokens are just enough for one step


def test_a_window_begins_where_the_one_before_ended():
    windows = SequentialWindows(stream(range(500)), 9, 4, seed=3)
    for step in range(1, windows.count):
        assert torch.equal(windows.batch(step)[:, 0], windows.batch(step - 1)[:, -1])


def test_a_text_that_is_too_short_is_named():
    with pytest.raises(UserError, match=r"32 tokens are too few for 4 rows of 8 side by side, which take 33\. Use"):
        SequentialWindows(stream(range(32)), 8, 4, seed=0)


# -- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_steps_are_one_long_reading(kind, geometry, layers):
    """Three batches, in two parts each: as if every row had been read at once, document by document."""
    model = make(kind, geometry, num_hidden_layers=layers)
    carried, seen = Carried(model, rows=4), torch.randint(1, 11, (4, 18), generator=torch.Generator().manual_seed(0))
    seen[1, 8] = seen[1, 3] = seen[2, 6] = seen[3, 12:14] = 0  # documents begin, two of them with a batch
    found = []
    for step in range(3):
        now = seen[:, 6 * step : 6 * step + 6]
        for rows in (torch.tensor([0, 2]), torch.tensor([3, 1])):
            begins = (now[rows, 0] == 0) | (step == 0)
            positions = torch.arange(6) - torch.where(now[rows] == 0, torch.arange(6), 0).cummax(1).values
            inputs = {} if not (now[rows, 1:] == 0).any() else {"position_ids": positions}
            found.append(carried(rows, begins, now[rows], **inputs).logits)
    for place, row in enumerate((0, 2, 3, 1)):
        starts = sorted({0, *(seen[row] == 0).nonzero().flatten().tolist()})
        parts = [seen[row : row + 1, a:b] for a, b in zip(starts, [*starts[1:], 18], strict=True)]
        whole = torch.cat([model(part).logits[0] for part in parts])
        mine = torch.cat([found[2 * step + place // 2][place % 2] for step in range(3)])
        torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-5)
    assert not carried.state.requires_grad


def test_who_begins_anew_knows_nothing_of_before():
    model = make("gru", "lorentz")
    carried, seen, rows = Carried(model, rows=2), torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.arange(2)
    carried(rows, torch.tensor([True, True]), seen)
    both = carried(rows, torch.tensor([True, False]), seen).logits
    assert torch.equal(both[0], model(seen).logits[0])
    assert not torch.allclose(both[1], model(seen).logits[1])


def test_a_batch_says_who_goes_on(text):
    task = live("sequential", text)
    bos, rows = task.corpus.train.bos, range(task.engine.batch)
    for step in (0, 1, task.windows.count - 1, task.windows.count):
        batch = task.batch(step, rows)
        first = step % task.windows.count == 0
        assert torch.equal(batch["begins"], (batch["tokens"][:, 0] == bos) | first)
        assert batch["slots"].tolist() == list(rows)
    assert task.batch(1, range(2, 4))["slots"].tolist() == [2, 3]
    assert not task.graphable(batch)


# -- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_learns_from_what_came_before_and_exports_a_plain_model(text, tmp_path):
    run_tiny(tiny("sequential", text), tmp_path / "run")
    run_tiny(tiny("sequential", text, "partition=random"), tmp_path / "other")
    model = Run.open(tmp_path / "run").load().model
    assert not any("state" in name for name in model.state_dict())
    assert model.state_dict().keys() == Run.open(tmp_path / "other").load().model.state_dict().keys()


@pytest.mark.parametrize("name", ["fflm", "helm-d-tiny"])
def test_a_model_without_a_state_refuses(text, tmp_path, name):
    kind = "characters" if name == "fflm" else "language"
    why = f"partition=sequential: {name} has no state to carry from step to step; use partition=random, or a recurrent"
    refused(tmp_path, lambda: tiny(kind, text, "partition=sequential", name=name), why)


def test_one_process_only(text):
    task = tiny("sequential", text).task
    task.world = World(0, 2)
    with pytest.raises(UserError, match="one process carries the states; start it without torchrun"):
        task.build(task.open_data())


def test_too_many_rows_for_a_text(text, tmp_path):
    recipe = tiny("sequential", text, "batch=4096")
    refused(tmp_path, lambda: run_tiny(recipe, tmp_path / "run"), "tokens are too few for 4096 rows of 16")
