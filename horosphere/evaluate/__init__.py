"""Evaluation of language models: perplexity, multiple choice, and the same tasks through lm-evaluation-harness."""

from horosphere.evaluate.choice import TASKS, Item, Score, TaskResult, evaluate_task, read_task, score
from horosphere.evaluate.harness import harness
from horosphere.evaluate.perplexity import Perplexity, perplexity

__all__ = [
    "TASKS",
    "Item",
    "Perplexity",
    "Score",
    "TaskResult",
    "evaluate_task",
    "harness",
    "perplexity",
    "read_task",
    "score",
]
