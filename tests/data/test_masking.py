"""Rows for BERT: what is hidden and how often, by χ² and against transformers' collator; which texts are joined."""

import numpy as np
import pytest

from horosphere.data.masking import NOT_ASKED, Special, asked_at_most, hide, joined, spans_of
from horosphere.data.tokens import TokenFile
from horosphere.errors import UserError

KNOWN = 50
SPECIAL = Special.after(KNOWN)


def stream(*documents, bos=0):
    """Documents of tokens, each behind a bos."""
    tokens = np.concatenate([[bos, *document] for document in documents])
    return TokenFile(tokens, bos=bos, vocab_size=KNOWN, text_bytes=len(tokens), documents=len(documents))


def rows_of_text(count, length, seed=0):
    """[CLS] text [SEP] text [SEP], no padding."""
    text = np.random.default_rng(seed).integers(1, KNOWN, (count, length))
    text[:, 0], text[:, length // 2], text[:, -1] = SPECIAL.begin, SPECIAL.end, SPECIAL.end
    return text


def unlikely(counts, expected):
    """p of the χ² test."""
    stats = pytest.importorskip("scipy.stats")
    return stats.chisquare(counts, np.array(expected) * np.sum(counts) / np.sum(expected)).pvalue


def kinds(before, after, places):
    """How many of these tokens became the mask, another token, or stayed."""
    rows = np.arange(len(before))[:, None]
    old, new = before[rows, places], after[rows, places]
    hidden, same = new == SPECIAL.hidden, new == old
    return np.array([hidden.sum(), (~hidden & ~same).sum(), same.sum()])


def test_shares_are_80_10_10():
    rows = rows_of_text(2000, 64)
    hidden = hide(rows, SPECIAL, asked_at_most(61), np.random.default_rng(0))
    again = 0.1 / KNOWN  # a random token may be the same again
    assert unlikely(kinds(rows, hidden.tokens, hidden.places), [0.8, 0.1 - again, 0.1 + again]) > 0.001


def test_places_are_equally_likely_and_never_special():
    rows = rows_of_text(4000, 20)
    hidden = hide(rows, SPECIAL, asked_at_most(17), np.random.default_rng(0))
    counts = np.bincount(hidden.places.ravel(), minlength=20)
    text = rows[0] < KNOWN
    assert not counts[~text].any()
    assert unlikely(counts[text], np.ones(text.sum())) > 0.001
    assert all(len(set(places)) == len(places) for places in hidden.places)


def test_replacements_are_equally_likely():
    rows = np.full((4000, 30), 7)
    hidden = hide(rows, SPECIAL, asked_at_most(30), np.random.default_rng(1))
    other = hidden.tokens[(hidden.tokens != 7) & (hidden.tokens != SPECIAL.hidden)]
    assert unlikely(np.bincount(other, minlength=KNOWN)[np.arange(KNOWN) != 7], np.ones(KNOWN - 1)) > 0.001


def test_what_is_asked_is_what_was_there_and_nothing_else_changes():
    rows = rows_of_text(50, 40)
    rows[:25, 20:] = SPECIAL.padding
    hidden = hide(rows, SPECIAL, asked_at_most(37), np.random.default_rng(0))
    number = np.arange(50)[:, None]
    asked = hidden.targets != NOT_ASKED
    assert (hidden.targets == rows[number, hidden.places])[asked].all()
    assert (asked.sum(1) == np.maximum(1, np.rint(0.15 * (rows < KNOWN).sum(1)))).all()
    changed = np.zeros_like(rows, dtype=bool)
    changed[np.broadcast_to(number, asked.shape)[asked], hidden.places[asked]] = True
    assert (hidden.tokens == rows)[~changed].all()


def test_transformers_collator_hides_as_often():
    """Ours takes 15 % of each row, theirs each token with 15 %; of those, both hide and replace the same shares."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    stats = pytest.importorskip("scipy.stats")
    from tokenizers import Tokenizer, models

    words = {f"w{i}": i for i in range(KNOWN)} | {"[CLS]": 50, "[SEP]": 51, "[MASK]": 52, "[PAD]": 53}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words)),
        **{"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"},
    )
    rows = rows_of_text(1500, 64)
    torch.manual_seed(0)
    collated = transformers.DataCollatorForLanguageModeling(tokenizer)([{"input_ids": row.tolist()} for row in rows])
    asked = collated["labels"].numpy() != -100
    after, text = collated["input_ids"].numpy(), (rows < KNOWN).sum()
    theirs = [(asked & (after == 52)).sum(), (asked & (after != 52) & (after != rows)).sum()]
    theirs = np.array([*theirs, asked.sum() - sum(theirs)])
    hidden = hide(rows, SPECIAL, asked_at_most(61), np.random.default_rng(0))
    ours = kinds(rows, hidden.tokens, hidden.places)
    assert stats.chi2_contingency([ours, theirs]).pvalue > 0.001
    assert ours.sum() / text == pytest.approx(asked.sum() / text, abs=0.01)


# -- spans and rows ----------------------------------------------------------------------------------------------------


def test_spans_stay_within_documents_and_cover_them():
    documents = [np.full(25, 1), np.full(7, 2), np.full(40, 3), np.full(9, 4)]
    spans = spans_of(stream(*documents), 10, "text")
    pieces = [spans.stream[start : start + size] for start, size in zip(spans.starts, spans.sizes, strict=True)]
    assert [piece.tolist() for piece in pieces] == [[1] * 10] * 2 + [[3] * 10] * 4 + [[4] * 9]


def test_half_of_the_rows_go_on_and_half_do_not():
    documents = [np.arange(1, 41) for _ in range(30)]
    spans = spans_of(stream(*documents), 20, "text")
    rows = joined(spans, np.arange(len(spans)).repeat(40), SPECIAL, 23, np.random.default_rng(0))
    assert unlikely(np.bincount(rows.apart), [1, 1]) > 0.001
    for tokens, segments, length, apart in zip(*rows, strict=True):
        first, second = np.flatnonzero(tokens == SPECIAL.end)
        assert tokens[0] == SPECIAL.begin
        assert (second + 1, *tokens[length:]) == (length, *[SPECIAL.padding] * (23 - length))
        assert segments[:length].tolist() == [0] * (first + 1) + [1] * (second - first)
        assert not segments[length:].any()
        assert 1 < first < second - 1  # neither is empty
        if not apart:
            assert tokens[first + 1] == tokens[first - 1] + 1
    assert len(set((rows.segments == 0).sum(1))) > 10  # cut anywhere


def test_a_row_that_is_apart_has_another_spans_beginning():
    documents = [np.full(12, number) for number in range(1, 21)]
    spans = spans_of(stream(*documents), 12, "text")
    rows = joined(spans, np.arange(20), SPECIAL, 15, np.random.default_rng(0))
    for tokens, segments, apart in zip(rows.tokens, rows.segments, rows.apart, strict=True):
        second = tokens[(segments == 1) & (tokens < KNOWN)]
        assert (second[0] != tokens[1]) == bool(apart)
        assert len(set(second)) == 1


def test_too_little_text_is_named():
    with pytest.raises(UserError, match=r"notes.txt: 1 spans of 20 tokens, and a row takes two; give more text"):
        spans_of(stream(np.full(20, 1)), 20, "notes.txt")
