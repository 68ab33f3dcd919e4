"""Clipping by norm: torch's own in flat space, the metric's length for points."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from horosphere.geometry import Lorentz, Poincare, Product
from horosphere.nn import Embedding
from horosphere.train.config import EngineConfig
from tests.train.test_engine import Flat, fit_task, flat_model, lines, quiet

SGD = {"optimizer": "sgd", "weight_decay": 0.0, "log_every": 1}


def grad_norms(folder):
    return [line["grad_norm"] for line in lines(folder) if "grad_norm" in line]


def test_clipping_in_flat_space_is_torchs_to_the_last_bit(tmp_path):
    config = EngineConfig(steps=9, batch=8, lr=0.5, schedule="constant", warmup=0, clip=0.3, **SGD)
    model, plain = flat_model(), flat_model()
    fit_task(model, Flat(), config, quiet(tmp_path / "run"))
    optimizer, found = torch.optim.SGD(plain.parameters(), lr=config.lr), []
    for step in range(config.steps):
        optimizer.zero_grad()
        Flat().loss(plain, Flat().batch(step, range(8)))[0].backward()
        found.append(nn.utils.clip_grad_norm_(plain.parameters(), config.clip).item())
        optimizer.step()
    assert grad_norms(tmp_path / "run") == found
    assert max(found) > config.clip
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


@dataclass(kw_only=True)
class Gathering(Flat):
    """Points of a table that move towards others."""

    target: torch.Tensor

    def batch(self, step, rows):
        return {"number": torch.arange(len(self.target))[rows.start : rows.stop]}

    def loss(self, model, batch):
        number = batch["number"]
        return model.manifold.sqdist(model(number), self.target[number]).sum(), {}


@pytest.mark.parametrize("m", [Lorentz(0.7), Poincare(0.7), Product((Lorentz(), 2), (Poincare(), 2))])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_clipping_of_points_knows_no_place(tmp_path, m, optimizer):
    """A run on a table that was moved by an isometry is the moved run: the length that is clipped is the metric's."""
    how = {**SGD, "optimizer": optimizer, "betas": (0.0, 0.9)}
    config = EngineConfig(steps=5, batch=6, lr=0.1, clip=0.5, **how)
    start, target = m.random(2, 6, 4, std=1.5, generator=torch.Generator().manual_seed(0)).double().unbind(0)
    by, ends = m.lift(torch.tensor([[1.0, -0.5, 0.5, 1.0]], dtype=torch.float64)), []
    for name, move in (("here", lambda x: x), ("there", lambda x: m.translate(x, by))):
        table = Embedding(6, 4, m).double()
        table.weight.data.copy_(move(start))
        fit_task(table, Gathering(target=move(target)), config, quiet(tmp_path / name))
        ends.append(table.weight.detach())
    here, there = (grad_norms(tmp_path / name) for name in ("here", "there"))
    assert min(here) > config.clip
    assert here == pytest.approx(there, rel=1e-6)
    if not m.per_coordinate or optimizer == "sgd":  # Adam on a product scales each coordinate by itself
        torch.testing.assert_close(m.translate(ends[0], by), ends[1], rtol=1e-6, atol=1e-6)
