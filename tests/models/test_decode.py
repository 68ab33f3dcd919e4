"""Decoding: beam search against all sequences there are, and against transformers'."""

import itertools
import math

import pytest
import torch

from horosphere.models.decode import beam_search, greedy
from horosphere.models.transformer import Transformer, TransformerConfig

TOKENS, LONGEST, END = 6, 5, 5


def random_step(seed):
    """A model whose next token depends on the whole path, which is its state. Rows know nothing of each other."""
    table = torch.randn(7**5, TOKENS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def step(tokens, state):
        state = {"path": state["path"] * 7 + tokens + 1, "more": (state["more"][0], [None])}
        return 2 * table[(state["path"] * 31 + state["more"][0]) % len(table)], state

    return step


def start(count):
    return {"path": torch.zeros(count, dtype=torch.long), "more": (torch.arange(count) * 1000, [None])}


def log_p(step, row, tokens):
    state, total, last = start(row + 1), 0.0, 0
    for token in tokens:
        logits, state = step(torch.full((row + 1,), last), state)
        total, last = total + logits[row].log_softmax(-1)[token].item(), token
    return total


def exhaustive(step, row, alpha):
    """The best of every sequence that ends, or has LONGEST tokens and no end."""
    inner = [token for token in range(TOKENS) if token != END]
    ended = [(*path, END) for size in range(LONGEST) for path in itertools.product(inner, repeat=size)]
    every = [*ended, *itertools.product(inner, repeat=LONGEST)]
    best = max(every, key=lambda path: log_p(step, row, path) / len(path) ** alpha)
    return [token for token in best if token != END], log_p(step, row, best) / len(best) ** alpha


@pytest.mark.parametrize("alpha", [0.0, 0.75, 1.5])
def test_enough_beams_find_the_best_of_all(alpha):
    step, first = random_step(3), torch.zeros(2, dtype=torch.long)
    found = beam_search(step, start(2), first, END, LONGEST, beams=5**4, alpha=alpha)
    for row in range(2):
        tokens, score = exhaustive(step, row, alpha)
        assert found[row].tokens == tokens
        assert found[row].score == pytest.approx(score)


def test_more_beams_are_no_worse_on_average_and_scores_are_what_they_say():
    means = []
    for beams in (1, 3, 20):
        scores = []
        for seed in range(20):
            step, first = random_step(seed), torch.zeros(1, dtype=torch.long)
            (found,) = beam_search(step, start(1), first, END, LONGEST, beams=beams)
            path = [*found.tokens, END][:LONGEST]
            assert found.score == pytest.approx(log_p(step, 0, path) / len(path) ** 0.75)
            scores.append(found.score)
        means.append(sum(scores) / len(scores))
    assert means == sorted(means)
    assert means[0] < means[-1]


def test_dividing_by_the_length_helps_long_sequences():
    sizes = []
    for alpha in (0.0, 0.75, 2.0):
        found = [
            beam_search(random_step(seed), start(1), torch.zeros(1, dtype=torch.long), END, LONGEST, 10, alpha)[0]
            for seed in range(20)
        ]
        sizes.append(sum(len(written.tokens) for written in found))
    assert sizes[0] < sizes[1] < sizes[2]


def test_greedy_takes_the_likeliest_token():
    step, state, tokens, expected = random_step(0), start(1), torch.zeros(1, dtype=torch.long), []
    for _ in range(LONGEST):
        logits, state = step(tokens, state)
        tokens = logits.argmax(-1)
        if tokens.item() == END:
            break
        expected.append(tokens.item())
    first = torch.zeros(1, dtype=torch.long)
    assert greedy(random_step(0), start(1), first, END, LONGEST) == [expected]
    assert greedy(step, start(1), first, END, 0) == [[]]


def test_rows_do_not_know_of_each_other():
    step, first = random_step(1), torch.zeros(3, dtype=torch.long)
    together = beam_search(step, start(3), first, END, LONGEST, beams=3)
    state = {"path": torch.zeros(1, dtype=torch.long), "more": (torch.tensor([2000]), [None])}
    (alone,) = beam_search(step, state, first[:1], END, LONGEST, beams=3)
    assert alone.tokens == together[2].tokens
    assert alone.score == pytest.approx(together[2].score)


def test_forbidden_tokens_are_never_written():
    first = torch.zeros(4, dtype=torch.long)
    for seed in range(5):
        rows = greedy(random_step(seed), start(4), first, END, LONGEST, never=(0, 1))
        rows += [found.tokens for found in beam_search(random_step(seed), start(4), first, END, LONGEST, never=(0, 1))]
        assert not {0, 1} & set(itertools.chain(*rows))


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_a_transformer_decodes_as_it_predicts(geometry):
    """Greedy tokens are the arg max of the whole forward; a beam's score is the sum of its log-probabilities."""
    torch.manual_seed(0)
    config = TransformerConfig(geometry=geometry, width=16, heads=2, layers=1, inner=16)
    model = Transformer(9, 9, config).double().eval()
    source, lengths, first = torch.randint(9, (3, 4)), torch.tensor([4, 2, 3]), torch.full((3,), 2)
    with torch.no_grad():
        rows = greedy(model.step, model.encode(source, lengths), first, 3, 6)
        found = beam_search(model.step, model.encode(source, lengths), first, 3, 6, beams=3)
        for i in range(3):
            for tokens in (rows[i], found[i].tokens):
                path = [*tokens, 3][:6]
                logits = model(source[i : i + 1], lengths[i : i + 1], torch.tensor([[2, *path[:-1]]]))[0]
                nats = logits.log_softmax(-1)[range(len(path)), path].sum().item()
                if tokens is rows[i]:
                    assert logits.argmax(-1).tolist() == path
                if tokens is found[i].tokens:
                    assert found[i].score == pytest.approx(nats / len(path) ** 0.75)


def test_transformers_beam_search():
    """The same Llama, as many beams as there are sequences: both must find the best of all."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=TOKENS, **sizes, bos_token_id=0, eos_token_id=END, pad_token_id=END)
    model = transformers.LlamaForCausalLM(config).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)

    def step(tokens, path):
        path = torch.cat((path, tokens.unsqueeze(1)), 1)
        return model(path).logits[:, -1], path

    with torch.no_grad():
        (ours,) = beam_search(step, torch.empty(1, 0, dtype=torch.long), torch.tensor([0]), END, 4, beams=150)
        options = {"num_beams": 150, "length_penalty": 0.75, "max_new_tokens": 4, "do_sample": False}
        asked = {**options, "output_scores": True, "return_dict_in_generate": True, "early_stopping": "never"}
        theirs = model.generate(torch.tensor([[0]]), **asked)
    row = theirs.sequences[0, 1:].tolist()
    assert ours.tokens == (row[: row.index(END)] if END in row else row)
    assert ours.score == pytest.approx(theirs.sequences_scores.item(), rel=1e-4)
    assert math.isfinite(ours.score)
