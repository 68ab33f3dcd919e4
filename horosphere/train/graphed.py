"""A training step as one CUDA graph: what binds small models is the launching of kernels, not the kernels."""

from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[dict[str, Tensor]], dict[str, Tensor]]
WARM_UPS = 3  # calls before the capture: compilation, workspaces and autotuning happen there


class Graphed:
    """function(batch) -> numbers, replayed once it ran a few times on batches of this form.

    It may change memory only in place. Gradients must exist and stay where they are: zero them in place, never set them
    to None. The next call overwrites the numbers returned. A batch of another form gets a graph of its own.
    """

    def __init__(self, function: Function):
        self.function = function
        self.calls: dict[tuple[object, ...], int] = {}
        self.captured: dict[tuple[object, ...], tuple[torch.cuda.CUDAGraph, dict[str, Tensor], dict[str, Tensor]]] = {}

    def __call__(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        form = tuple((name, t.shape, t.dtype) for name, t in sorted(batch.items()))
        if form in self.captured:
            graph, inputs, numbers = self.captured[form]
            for name, t in batch.items():
                inputs[name].copy_(t)
            graph.replay()
            return numbers
        self.calls[form] = self.calls.get(form, 0) + 1
        if self.calls[form] <= WARM_UPS:
            return self.function(batch)
        inputs = {name: t.clone() for name, t in batch.items()}
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # the graph has memory of its own: what the warm-ups used is free now
        with torch.cuda.graph(graph):  # records without running
            numbers = self.function(inputs)
        self.captured[form] = graph, inputs, numbers
        graph.replay()
        return numbers
