"""How much work a step is: the operations of its products, counted by torch while two rows go through."""

from __future__ import annotations

from typing import Any

import torch

from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World
from horosphere.train.engine import precision
from horosphere.train.recipe import Recipe

ROWS = 2  # some layers need more than one


def gflop(recipe: Recipe, data: Any, engine: EngineConfig, device: str) -> float:
    """10⁹ operations of matrix products, convolutions and attention in a step, forward and backward.

    Rows cost the same each: two are counted, for all that a step has. What kernels of our own multiply is not seen.
    """
    from torch.utils.flop_counter import FlopCounterMode  # takes a second to import

    task = recipe.task
    task.quiet, task.world, task.engine = True, World(device=torch.device(device)), engine
    with torch.random.fork_rng(devices=[]):
        model = task.build(data).to(device).train()
        task.ready(data)
        batch = {name: t.to(device) for name, t in task.batch(0, range(min(ROWS, engine.batch))).items()}
        with FlopCounterMode(display=False, custom_mapping=_known()) as counter, precision(engine, task.world.device):
            task.loss(model, batch)[0].backward()
    return counter.get_total_flops() / 1e9 * engine.batch / min(ROWS, engine.batch)


def _known() -> dict[Any, Any]:
    """Of operations that torch itself does not count: products in groups, attention on the CPU."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    def attention(q: torch.Size, k: torch.Size, v: torch.Size, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(q, k, v))

    def backward(g: torch.Size, q: torch.Size, k: torch.Size, v: torch.Size, *_: Any, **__: Any) -> int:
        return int(sdpa_backward_flop_count(g, q, k, v))

    aten = torch.ops.aten
    return {
        aten._grouped_mm: _grouped,
        aten._scaled_dot_product_flash_attention_for_cpu: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }


def _grouped(a: torch.Size, b: torch.Size, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Of rows (N, k) with a matrix (k, m) each, of several; and of its gradient, (k, N) with (N, m)."""
    return 2 * a[-2] * a[-1] * b[-1]
