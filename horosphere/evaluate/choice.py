"""Multiple choice: does a language model find the right continuation likelier than the wrong ones?

Prompts and metrics are those of lm-evaluation-harness, zero-shot. These things differ:
- The beginning-of-document token always comes first, and stays when a long context is cut. Models are trained on
  documents that start with it.
- BLiMP's sentences start a document, so no space comes before them. COPA has one space before a choice, not two.
- A tie counts 1/number of tied. So a model that finds all choices alike scores chance.
- A limit takes items evenly from the whole file. Its first items are all of one kind where a file is sorted.
- Standard errors are binomial, √(p(1-p)/n).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from horosphere.errors import UserError
from horosphere.evaluate.perplexity import evaluating, log_probabilities
from horosphere.foreign import Unreadable, is_text, lines_of, opened, parse_json
from horosphere.progress import Update, progress


@dataclass(frozen=True)
class Item:
    """A question: which of the choices follows the context? A tuple has a context for each choice.

    >>> Item("The sky is", ("blue", "square"), gold=0).requests()
    [('The sky is', ' blue'), ('The sky is', ' square')]
    """

    context: str | tuple[str, ...]
    choices: tuple[str, ...]
    gold: int
    group: str = ""  # a phenomenon or subject with an accuracy of its own

    def requests(self) -> list[tuple[str, str]]:
        """(context, continuation) for each choice; a space joins them where there is a context."""
        contexts = (self.context,) * len(self.choices) if isinstance(self.context, str) else self.context
        return [
            (context, f" {choice}" if context else choice)
            for context, choice in zip(contexts, self.choices, strict=True)
        ]


# -- scores ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy:
    """A share of right answers and its standard error.

    >>> str(Accuracy.of([1, 0, 1, 1]))
    '0.750 ± 0.217'
    """

    value: float
    stderr: float

    @staticmethod
    def of(credits: Sequence[float]) -> "Accuracy":
        p = sum(credits) / len(credits)
        return Accuracy(p, math.sqrt(p * (1 - p) / len(credits)))

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.stderr:.3f}"


@dataclass(frozen=True)
class Score:
    """Accuracies of a model on the items of a task."""

    acc: Accuracy  # the likeliest choice is right
    acc_norm: Accuracy  # the choice likeliest per character is right, which does not favour short ones, as in lm-eval
    chance: float  # mean of 1/choices
    groups: dict[str, Accuracy]  # acc of each group
    cut: int  # items whose context was longer than the model reads
    log_likelihoods: tuple[tuple[float, ...], ...]  # of each choice of each item

    def __len__(self) -> int:
        return len(self.log_likelihoods)


def score(
    model: nn.Module,
    tokenizer: Any,
    items: Sequence[Item],
    device: torch.device | str = "cpu",
    batch_tokens: int = 16384,
    progress: Update | None = None,
) -> Score:
    """log p(choice | context) of every choice under a causal language model of transformers, and the accuracies.

    batch_tokens: tokens the model sees at once, padding included.
    progress(choices done, note) is called after each batch.

    >>> from types import SimpleNamespace
    >>> from horosphere.data.tokenizer import train_tokenizer
    >>> class Uniform(nn.Module):  # finds all choices alike
    ...     def forward(self, input_ids, attention_mask):
    ...         return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 257))
    >>> str(score(Uniform(), train_tokenizer(["text"], 257), [Item("The sky is", ("blue", "cold"), gold=0)]).acc)
    '0.500 ± 0.500'
    """
    if not items:
        raise UserError("there are no items to score: give at least one")
    longest = getattr(getattr(model, "config", None), "max_position_embeddings", None) or math.inf
    prefix = prefix_token(tokenizer)
    pairs = _encode(tokenizer, [request for item in items for request in item.requests()])
    fitted = [fit(prefix, context, continuation, longest) for context, continuation in pairs]
    values = iter(_log_likelihoods(model, fitted, device, batch_tokens, progress))
    likelihoods = [tuple(next(values) for _ in item.choices) for item in items]
    owners = [number for number, item in enumerate(items) for _ in item.choices]
    cut = {
        owner
        for owner, (context, _), (before, _) in zip(owners, pairs, fitted, strict=True)
        if len(before) <= len(context)
    }

    right = [_credit(logs, item.gold) for logs, item in zip(likelihoods, items, strict=True)]
    per_character = [
        [log / len(choice) for log, choice in zip(logs, item.choices, strict=True)]
        for logs, item in zip(likelihoods, items, strict=True)
    ]
    right_norm = [_credit(logs, item.gold) for logs, item in zip(per_character, items, strict=True)]
    groups: dict[str, list[float]] = {}
    for item, credit in zip(items, right, strict=True):
        groups.setdefault(item.group, []).append(credit)
    by_group = {name: Accuracy.of(credits) for name, credits in sorted(groups.items()) if name}
    chance = sum(1 / len(item.choices) for item in items) / len(items)
    return Score(Accuracy.of(right), Accuracy.of(right_norm), chance, by_group, len(cut), tuple(likelihoods))


def _credit(values: Sequence[float], gold: int) -> float:
    """1 if the value at gold is the largest, shared among those that tie with it; else 0."""
    best = max(values)
    return (values[gold] == best) / values.count(best)


# -- log-likelihoods -------------------------------------------------------------------------------------------------


def prefix_token(tokenizer: Any) -> int:
    """The token that starts every document: bos, else eos.

    >>> from types import SimpleNamespace
    >>> prefix_token(SimpleNamespace(bos_token_id=None, eos_token_id=2))
    2
    """
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise UserError(
        "the tokenizer has neither a bos nor an eos token: set tokenizer.bos_token to what starts a document"
    )


def fit(prefix: int, context: list[int], continuation: list[int], longest: float) -> tuple[list[int], list[int]]:
    """([prefix, context], continuation), with the context cut from the left to what the model can read.

    The model reads all but the last token, at most `longest`.

    >>> fit(0, [1, 2, 3, 4], [5, 6], longest=4)
    ([0, 3, 4], [5, 6])
    """
    room = longest - len(continuation)
    if room < 0:
        raise UserError(
            f"a choice of {len(continuation)} tokens is too long for a model that reads {longest}: leave its item out"
        )
    return [prefix, *context[int(max(0, len(context) - room)) :]], continuation


def _encode(tokenizer: Any, requests: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    """Tokens of contexts and continuations. As in lm-eval, a continuation is what the whole has beyond the context."""
    requests = [
        (context.rstrip(), context[len(context.rstrip()) :] + continuation) for context, continuation in requests
    ]
    texts = list(
        dict.fromkeys(text for context, continuation in requests for text in (context, context + continuation))
    )
    tokens = dict(zip(texts, tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"], strict=True))
    pairs = []
    for context, continuation in requests:
        before = tokens[context]
        after = tokens[context + continuation][len(before) :]
        if not after:
            raise UserError(
                f"the choice {continuation!r} adds no token to its context: "
                "the tokenizer joins the two, so leave its item out"
            )
        pairs.append((before, after))
    return pairs


def _log_likelihoods(
    model: nn.Module,
    requests: Sequence[tuple[list[int], list[int]]],
    device: torch.device | str,
    batch_tokens: int,
    progress: Update | None,
) -> list[float]:
    """log p(continuation | tokens before) of each request.

    Requests with the same input share a row, for example those whose continuations are one letter each.
    """
    sharing: dict[tuple[int, ...], list[int]] = {}
    for number, (before, continuation) in enumerate(requests):
        sharing.setdefault((*before, *continuation[:-1]), []).append(number)
    inputs = sorted(sharing, key=len, reverse=True)  # longest first: what does not fit into memory fails at once
    likelihoods = [0.0] * len(requests)
    start = done = 0
    with evaluating(model):
        while start < len(inputs):
            batch = inputs[start : start + max(1, batch_tokens // len(inputs[start]))]
            start += len(batch)
            tokens = pad_sequence([torch.tensor(row) for row in batch], batch_first=True).to(device)
            lengths = torch.tensor([len(row) for row in batch], device=device)
            mask = torch.arange(tokens.shape[1], device=device) < lengths[:, None]
            logits = model(input_ids=tokens, attention_mask=mask.long()).logits

            asked = [(row, number) for row, same in enumerate(batch) for number in sharing[same]]
            continuations = [requests[number][1] for _, number in asked]
            sizes = [len(continuation) for continuation in continuations]
            rows = torch.tensor([row for row, _ in asked]).repeat_interleave(torch.tensor(sizes))
            columns = torch.cat(
                [
                    torch.arange(len(batch[row]) - size, len(batch[row]))
                    for (row, _), size in zip(asked, sizes, strict=True)
                ]
            )
            targets = torch.tensor([token for continuation in continuations for token in continuation])
            values = log_probabilities(logits, (rows.to(device), columns.to(device)), targets.to(device))
            for (_, number), value in zip(asked, values.split(sizes), strict=True):
                likelihoods[number] = value.sum().item()
            done += len(asked)
            if progress:
                progress(done, "choices")
    return likelihoods


# -- tasks -----------------------------------------------------------------------------------------------------------


def question(row: dict[str, Any]) -> Item:
    """{"query": text, "choices": [texts], "gold": index, optionally "subject": text}

    >>> question({"query": "The sky is", "choices": ["blue", "square"], "gold": 0}).choices
    ('blue', 'square')
    """
    query, choices, gold = _text(row, "query"), row.get("choices"), row.get("gold")
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice for choice in choices):
        raise ValueError('"choices" should be a list of texts')
    _require_whole("".join(choices), "choices")
    if not 2 <= len(choices) <= len(ascii_uppercase):
        raise ValueError(f"{len(choices)} choices; there should be 2 to {len(ascii_uppercase)}")
    if not isinstance(gold, int) or isinstance(gold, bool) or not 0 <= gold < len(choices):
        raise ValueError(f'"gold" should be the index of the right choice, 0 to {len(choices) - 1}')
    return Item(query, tuple(choices), gold, _text(row, "subject") if "subject" in row else "")


def pair(row: dict[str, Any]) -> Item:
    """{"good": sentence, "bad": sentence, "phenomenon": text} as in BLiMP: a minimal pair, without context.

    >>> pair({"good": "Cats sleep.", "bad": "Cats sleeps.", "phenomenon": "agreement"}).requests()
    [('', 'Cats sleep.'), ('', 'Cats sleeps.')]
    """
    return Item("", (_text(row, "good"), _text(row, "bad")), 0, _text(row, "phenomenon"))


def framed(frame: str, drop: str = "") -> Callable[[dict[str, Any]], Item]:
    """The query at the {} of a frame, without `drop` at its start; the choices follow as they are.

    >>> framed("Q: {}\\nA:")({"query": "Why?", "choices": ["so", "no"], "gold": 0}).context
    'Q: Why?\\nA:'
    """

    def item(row: dict[str, Any]) -> Item:
        plain = question(row)
        return replace(plain, context=frame.format(row["query"].removeprefix(drop)))

    return item


def lettered(frame: str) -> Callable[[dict[str, Any]], Item]:
    """The query at the {} of a frame, then the choices with a letter each; the continuation is the letter.

    >>> lettered("Q: {}")({"query": "Why?", "choices": ["so", "no"], "gold": 0}).context
    'Q: Why?\\nA. so\\nB. no\\nAnswer:'
    """

    def item(row: dict[str, Any]) -> Item:
        plain = question(row)
        listed = "".join(
            f"\n{letter}. {choice}" for letter, choice in zip(ascii_uppercase, plain.choices, strict=False)
        )
        context = f"{frame.format(row['query'].strip())}{listed}\nAnswer:"
        return replace(plain, context=context, choices=tuple(ascii_uppercase[: len(plain.choices)]))

    return item


def mmlu(row: dict[str, Any]) -> Item:
    """Lettered, under a line that names the subject.

    >>> mmlu({"query": "1 + 1?", "choices": ["2", "3"], "gold": 0, "subject": "algebra"}).context[:66]
    'The following are multiple choice questions (with answers) about a'
    """
    plain = lettered("{}")(row)
    about = f"The following are multiple choice questions (with answers) about {plain.group.replace('_', ' ')}.\n\n"
    return replace(plain, context=f"{about if plain.group else ''}{plain.context}")


def winogrande(row: dict[str, Any]) -> Item:
    """The choices fill the blank, and the rest of the sentence, the same for all, is scored (Trinh and Le 2018).

    >>> winogrande({"query": "The _ slept well.", "choices": ["cat", "car"], "gold": 0}).requests()
    [('The cat', ' slept well.'), ('The car', ' slept well.')]
    """
    plain = question(row)
    before, blank, rest = row["query"].partition("_")
    if not (blank and rest.strip()):
        raise ValueError('"query" should have a blank "_" and go on after it')
    return replace(
        plain, context=tuple(before + choice for choice in plain.choices), choices=(rest.strip(),) * len(plain.choices)
    )


def _text(row: dict[str, Any], name: str) -> str:
    if not (isinstance(row.get(name), str) and row[name].strip()):
        raise ValueError(f'"{name}" should be a text')
    return _require_whole(row[name], name)


def _require_whole(text: str, name: str) -> str:
    """JSON can spell half of a character, which no tokenizer reads."""
    if not is_text(text):
        raise ValueError(f'"{name}" has half a character (a lone surrogate)')
    return text


@dataclass(frozen=True)
class Task:
    """How to read a task. Its file is called NAME, NAME_test or NAME_valid, or has one of the further names."""

    item: Callable[[dict[str, Any]], Item]  # a line of the file as an item
    also: tuple[str, ...] = ()  # further names


TASKS: dict[str, Task] = {
    "blimp": Task(pair),
    "mmlu": Task(mmlu),
    "arc_challenge": Task(framed("Question: {}\nAnswer:")),
    "arc_easy": Task(framed("Question: {}\nAnswer:")),
    "openbookqa": Task(framed("{}")),
    "commonsense_qa": Task(lettered("Question: {}")),
    "hellaswag": Task(framed("{}"), also=("hellaswag_1k",)),
    "piqa": Task(framed("Question: {}\nAnswer:", drop="Goal: ")),
    "siqa": Task(framed("Q: {}\nA:")),
    "winogrande": Task(winogrande),
    "boolq": Task(framed("{}\nAnswer:", drop="Passage: ")),
    "copa": Task(framed("{}")),
}


@dataclass(frozen=True)
class TaskResult:
    """The score of a model on a task, as a row of a table.

    >>> half = Accuracy.of([1, 0])
    >>> TaskResult("copa", Score(half, half, 0.5, {}, 0, ((-1.0, -2.0), (-2.0, -1.0)))).row()
    ['copa', '2', '0.500 ± 0.354', '0.500 ± 0.354', '0.500']
    """

    task: str
    score: Score
    heads: ClassVar[tuple[str, ...]] = ("task", "items", "acc ↑", "acc_norm ↑", "chance")

    def row(self) -> list[str]:
        """Cells under `heads`."""
        return [
            self.task,
            f"{len(self.score):,}",
            str(self.score.acc),
            str(self.score.acc_norm),
            f"{self.score.chance:.3f}",
        ]


def evaluate_task(
    name: str,
    path: str | Path,
    model: nn.Module,
    tokenizer: Any,
    device: torch.device | str = "cpu",
    limit: int | None = None,
    batch_tokens: int = 16384,
    quiet: bool = True,
) -> TaskResult:
    """Score a model on a task whose file is at `path` or in that folder. quiet=False shows progress."""
    items = read_task(name, path, limit)
    with progress(name, sum(len(item.choices) for item in items), quiet) as update:
        return TaskResult(name, score(model, tokenizer, items, device, batch_tokens, update))


def read_task(name: str, path: str | Path, limit: int | None = None) -> list[Item]:
    """Items of a task from its .jsonl or .jsonl.gz file, or the folder that holds it.

    limit: take so many, evenly from all.

    >>> import tempfile
    >>> line = '{"query": "It rained, so", "choices": ["I got wet", "I sang"], "gold": 0}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "copa.jsonl").write_text(line)
    ...     read_task("copa", folder)[0].requests()
    [('It rained, so', ' I got wet'), ('It rained, so', ' I sang')]
    """
    if name not in TASKS:
        raise UserError(f"there is no task {name}: choose from {', '.join(TASKS)}")
    if limit is not None and limit < 1:
        raise UserError(f"a limit of {limit} items leaves none: give at least 1")
    items = _read(_find(name, Path(path)), TASKS[name].item)
    count = min(limit or len(items), len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _find(name: str, path: Path) -> Path:
    if not path.is_dir():
        return path
    stems = (name, f"{name}_test", f"{name}_valid", *TASKS[name].also)
    names = [f"{stem}{suffix}" for stem in stems for suffix in (".jsonl", ".jsonl.gz")]
    for file in names:
        if (path / file).is_file():
            return path / file
    raise UserError(f"{path} holds no file for {name}: looked for {', '.join(names)}. Rename yours, or give its path")


def _read(path: Path, item: Callable[[dict[str, Any]], Item]) -> list[Item]:
    items = []
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(lines_of(file), 1):
                if line.strip():
                    items.append(_item(item, line, f"{path} line {number}"))
    except Unreadable as error:
        raise UserError(f"{path}: {error}. Check the path, or make the file again.") from None
    if not items:
        raise UserError(f"{path}: no items. Give a file with one a line.")
    return items


def _item(item: Callable[[dict[str, Any]], Item], line: bytes, where: str) -> Item:
    try:
        row = parse_json(line)
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        return item(row)
    except ValueError as error:
        raise UserError(f"{where}: {error}. Correct the line, or remove it.") from None
