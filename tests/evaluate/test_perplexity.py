"""Perplexity is a sum over predictions: it does not depend on how they are batched, chunked or ordered."""

import math
from types import SimpleNamespace

import pytest
import scipy.stats
import torch
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.evaluate.perplexity import Perplexity, evaluating, log_probabilities, perplexity
from tests.evaluate.tiny import llama

LENGTH = 12


def windows(rows: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(200, (rows, LENGTH + 1), generator=generator), torch.rand(
        rows, LENGTH, generator=generator
    ) < 0.7


class Constant(nn.Module):
    """The same logits everywhere."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.logits.expand(*input_ids.shape, -1))


def test_equals_the_models_own_loss():
    model = llama()
    tokens, counted = windows(5)
    labels = tokens.clone()
    labels[:, 1:][~counted] = -100
    labels[:, 0] = -100
    cost = perplexity(model, [(tokens, counted)])
    assert cost.loss == pytest.approx(model(input_ids=tokens, labels=labels).loss.item(), rel=1e-5)
    assert cost.tokens == counted.sum()


def test_batches_do_not_matter():
    model = llama()
    tokens, counted = windows(6)
    together = perplexity(model, [(tokens, counted)], text_bytes=100)
    apart = perplexity(model, zip(tokens.split(1), counted.split(1), strict=True), text_bytes=100)
    assert together.nats == pytest.approx(apart.nats, rel=1e-5)
    assert together.stderr == pytest.approx(apart.stderr, rel=1e-4)
    assert (together.tokens, together.bytes) == (apart.tokens, apart.bytes)


def test_a_uniform_model_needs_log2_v_bits():
    tokens, counted = windows(4)
    cost = perplexity(Constant(torch.zeros(256)), [(tokens, counted)], text_bytes=int(counted.sum()))
    assert cost.per_token == pytest.approx(256, rel=1e-5)
    assert cost.bits_per_byte == pytest.approx(8, rel=1e-5)
    assert cost.stderr == pytest.approx(0, abs=1e-6)


def test_bits_per_byte_are_unknown_without_bytes():
    assert Perplexity(1.0, 1, None, None).bits_per_byte is None


def test_an_infinite_loss_is_an_infinite_perplexity():
    assert Perplexity(1e6, 1, None, None).per_token == math.inf
    assert Perplexity(100.0, 1, None, None).per_token == pytest.approx(math.exp(100))  # beyond what fp32 holds


def test_stderr_is_the_spread_over_repeated_texts():
    """The error estimated from one text is about the standard deviation of the loss over many."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, generator=generator)
    costs = []
    for _ in range(300):
        tokens = torch.multinomial(logits.softmax(-1), 40 * (LENGTH + 1), replacement=True, generator=generator).view(
            40, -1
        )
        costs.append(perplexity(Constant(logits), [(tokens, torch.rand(40, LENGTH, generator=generator) < 0.5)]))
    spread = torch.tensor([p.loss for p in costs]).std().item()
    assert sum(p.stderr for p in costs) / len(costs) == pytest.approx(spread, rel=0.15)


def test_stderr_of_windows_of_one_length_is_that_of_their_mean():
    """n/(n - 1) and all: scipy's standard error of the mean, of few windows, where it matters."""
    model = llama()
    for rows in (2, 3, 7):
        tokens = windows(rows)[0]
        counted = torch.ones(rows, LENGTH, dtype=torch.bool)
        losses = [perplexity(model, [(tokens[i : i + 1], counted[i : i + 1])]).loss for i in range(rows)]
        assert perplexity(model, [(tokens, counted)]).stderr == pytest.approx(scipy.stats.sem(losses), rel=1e-4)


def test_one_window_has_no_stderr():
    assert perplexity(llama(), [windows(1)]).stderr is None


def test_windows_that_count_nothing_change_nothing():
    model = llama()
    some = windows(3)
    nothing = (some[0], torch.zeros_like(some[1]))
    assert perplexity(model, [some, nothing]) == perplexity(model, [some])


def test_the_model_reads_what_inputs_say():
    model = llama()
    tokens, counted = windows(3)
    plain = perplexity(model, [(tokens, counted)])
    only_itself = torch.eye(LENGTH).bool().expand(3, 1, -1, -1)
    isolated = perplexity(model, [(tokens, counted)], inputs=lambda t: {"input_ids": t, "attention_mask": only_itself})
    alone = perplexity(model, [(tokens[:, i : i + 2], counted[:, i : i + 1]) for i in range(LENGTH)])
    assert isolated.nats == pytest.approx(alone.nats, rel=1e-5)
    assert abs(plain.nats - alone.nats) > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_in_chunks(monkeypatch, dtype):
    generator = torch.Generator().manual_seed(1)
    logits = (10 * torch.randn(3, 7, 33, generator=generator)).to(dtype)
    rows, columns = torch.tensor([0, 2, 2, 1, 0]), torch.tensor([6, 0, 0, 3, 2])
    targets = torch.tensor([4, 9, 32, 0, 1])
    expected = logits.double().log_softmax(-1)[rows, columns, targets]
    for entries in (1, 66, 2**20):
        monkeypatch.setitem(log_probabilities.__globals__, "ENTRIES", entries)
        assert_close(log_probabilities(logits, (rows, columns), targets), expected, atol=1e-5, rtol=1e-5)


def test_modes_and_gradients_come_back():
    model = llama().train()
    model.model.layers[0].eval()
    before = {name: m.training for name, m in model.named_modules()}
    seen = []

    def watched():
        yield windows(1)
        seen.append((any(m.training for m in model.modules()), torch.is_grad_enabled()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perplexity(model, watched())
    assert seen == [(False, False)]
    assert {name: m.training for name, m in model.named_modules()} == before
    assert torch.is_grad_enabled()
    with evaluating(model):
        assert not model(input_ids=torch.zeros(1, 2, dtype=torch.long)).logits.requires_grad


def test_progress_counts_windows():
    seen = []
    perplexity(llama(), [windows(2), windows(3, seed=1)], progress=lambda done, note: seen.append(done))
    assert seen == [2, 5]


@pytest.mark.parametrize("text", [[], [(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool))]])
def test_nothing_to_predict_is_said(text):
    with pytest.raises(UserError, match="two tokens"):
        perplexity(llama(), text)


def test_nan_is_said():
    with pytest.raises(UserError, match="NaN"):
        perplexity(Constant(torch.full((256,), math.nan)), [windows(1)])
