"""The same tasks through lm-evaluation-harness: a second opinion from the code that published numbers come from."""

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from horosphere.evaluate.choice import Item, fit, prefix_token, read_task
from horosphere.evaluate.perplexity import evaluating
from horosphere.extras import require


def harness(
    model: nn.Module,
    tokenizer: Any,
    tasks: Sequence[str],
    folder: str | Path,
    limit: int | None = None,
    batch_size: int = 16,
) -> dict[str, dict[str, float]]:
    """{task: {"acc": …, "acc_stderr": …, "acc_norm": …, "acc_norm_stderr": …}} as lm-eval computes them.

    Items and prompts are those of `evaluate_task`, from the same local files; nothing is downloaded. There is no
    acc_norm where every choice has its own context: lm-eval would divide by the contexts' lengths.
    """
    items = {name: read_task(name, folder, limit) for name in tasks}
    require("harness")
    import lm_eval

    with _quiet(), evaluating(model):
        wrapped = _wrapped(model, tokenizer, batch_size)
        theirs = {name: _task(name, items[name]) for name in tasks}
        results = lm_eval.evaluate(wrapped, theirs, log_samples=False)["results"]
    metrics = ("acc", "acc_stderr", "acc_norm", "acc_norm_stderr")
    return {
        name: {metric: results[name][f"{metric},none"] for metric in metrics if f"{metric},none" in results[name]}
        for name in tasks
    }


def harness_row(task: str, scores: dict[str, float], items: Sequence[Item]) -> list[str]:
    """Cells under `TaskResult.heads`."""
    accuracies = [
        f"{scores[name]:.3f} ± {scores[f'{name}_stderr']:.3f}" if name in scores else "" for name in ("acc", "acc_norm")
    ]
    chance = sum(1 / len(item.choices) for item in items) / len(items)
    return [task, f"{len(items):,}", *accuracies, f"{chance:.3f}"]


def _wrapped(model: nn.Module, tokenizer: Any, batch_size: int) -> Any:
    from lm_eval.models.huggingface import HFLM

    prefix = prefix_token(tokenizer)

    class Prefixed(HFLM):
        """Every document starts with the prefix token, as our models expect; lm-eval adds it to empty contexts only."""

        def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
            before, after = super()._encode_pair(context, continuation)
            return fit(prefix, before, after, self.max_length)

    return Prefixed(
        pretrained=model, tokenizer=tokenizer, batch_size=batch_size, add_bos_token=False, prefix_token_id=prefix
    )


def _task(name: str, items: Sequence[Item]) -> Any:
    """A task of lm-eval over items in memory."""
    from datasets import Dataset
    from lm_eval.api.task import ConfigurableTask

    rows = Dataset.from_list([asdict(item) for item in items])
    shared = isinstance(items[0].context, str)
    config = {
        "task": name,
        "custom_dataset": lambda **_: {"test": rows},
        "test_split": "test",
        "output_type": "multiple_choice",
        "target_delimiter": " " if items[0].context else "",
        # where each choice has its own context, lm-eval wants the right index as the text, the contexts as choices,
        # and what follows them as the target
        "doc_to_text": (lambda row: row["context"]) if shared else (lambda row: row["gold"]),
        "doc_to_choice": (lambda row: row["choices"]) if shared else (lambda row: row["context"]),
        "doc_to_target": (lambda row: row["gold"]) if shared else (lambda row: row["choices"][0]),
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": True}
            for metric in ("acc", "acc_norm")[: 1 + shared]
        ],
    }
    return ConfigurableTask(config=config)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide lm-eval's bars, and all of its log but errors. What it raises still comes through."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
