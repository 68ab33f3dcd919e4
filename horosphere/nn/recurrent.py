"""Recurrent layers: torch's own in flat space; elsewhere the state is a point, and gates are real numbers.

The input products of all steps are one matrix product. The loop runs in free coordinates (`Manifold.free_chart`):
points of the ball enter and leave it once, not at every step.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from horosphere.geometry import Manifold, Product
from horosphere.nn.axes import require_width
from horosphere.nn.first_call import require_manifold, settle
from horosphere.nn.part_way import part_way

State = tuple[Tensor, ...]  # of a step: (h,), or (h, c) of an LSTM, each (B, h)
Step = Callable[[Tensor, State], State]  # from the input product of a step (B, gates) and the state before it


class _Reading(NamedTuple):
    """W h + w_t·time(h)/√d + b of a state h, as `Linear` reads a point.   (B, d) -> (B, gates)"""

    manifold: Manifold
    weight: Tensor
    bias: Tensor
    time_weight: Tensor | None  # (times, gates), divided by √d already

    def __call__(self, h: Tensor) -> Tensor:
        product = F.linear(h, self.weight, self.bias)
        if self.time_weight is None:
            return product
        time = self.manifold.ambient(h)[1].to(product.dtype)  # type: ignore[union-attr]
        if torch.compiler.is_compiling() and len(self.time_weight) == 1:  # one with what follows; a product is not
            return product + time * self.time_weight.to(product.dtype)
        return torch.addmm(product, time, self.time_weight)

    def split(self, first: int) -> tuple["_Reading", "_Reading"]:
        """The first so many gates, and the others."""
        parts = zip(self.weight.tensor_split([first]), self.bias.tensor_split([first]), strict=True)
        times = (None, None) if self.time_weight is None else self.time_weight.tensor_split([first], 1)
        one, two = (_Reading(self.manifold, w, b, t) for (w, b), t in zip(parts, times, strict=True))
        return one, two


class _Recurrent(nn.RNNBase):
    """What the three share: weights for times, layers and directions, packed sequences, and the loop over steps.

    In flat space `__new__` makes a subclass that is torch's layer too. A curved one is not: compilers refuse those.
    """

    mode: str  # how torch calls it
    parts: ClassVar[int] = 1  # of a state
    _compiler: Callable[[Step], Step] | None = None
    manifold: Manifold

    def __new__(
        cls, input_size: int = 0, hidden_size: int = 0, manifold: Manifold | None = None, *args: Any, **options: Any
    ) -> Any:
        if manifold is not None:
            require_manifold(manifold, cls.__name__)
        flat = manifold is not None and manifold.flat and options.get("reset", "after") == "after"
        return super().__new__(TORCHS.get(cls, cls) if flat else cls)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        manifold: Manifold,
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ):
        if isinstance(manifold, Product) and (bidirectional or {input_size, hidden_size} != {manifold.dim}):
            sizes = f"input_size={input_size}, hidden_size={hidden_size}, bidirectional={bidirectional}"
            raise ValueError(f"{sizes}: points of this product have {manifold.dim} coordinates, in one direction only")
        options: dict[str, Any] = {"batch_first": batch_first, "dropout": dropout, "bidirectional": bidirectional}
        nn.RNNBase.__init__(self, self.mode, input_size, hidden_size, num_layers, **options)
        self.manifold = settle(self, manifold)
        if times := manifold.ambient_extra:
            for name, weight in self._matrices():
                setattr(self, f"time_{name}", nn.Parameter(weight.new_zeros(len(weight), times)))

    def reset_parameters(self) -> None:
        """As torch's, and no weight for times: they are nearly the same for all points."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for names in self._all_weights:
            for name in names:
                nn.init.uniform_(getattr(self, name), -bound, bound)
        for name, _ in self._matrices():
            if hasattr(self, f"time_{name}"):  # nn.RNNBase.__init__ calls this before there is one
                nn.init.zeros_(getattr(self, f"time_{name}"))

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            padded, lengths = pad_packed_sequence(input)
            out, last = self._layers(padded, self._states(hx, padded), lengths.to(padded.device))
            return _packed_like(input, out, lengths), self._returned(last)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self._get_name()}: {tuple(input.shape)}; give points as (T, d), or a batch of them")
        alone, axis = input.dim() == 2, 1 if self.batch_first and input.dim() == 3 else 0
        x = input.unsqueeze(1) if alone else input.transpose(0, axis)
        if alone and hx is not None:
            hx = tuple(h.unsqueeze(1) for h in hx) if isinstance(hx, tuple) else hx.unsqueeze(1)
        out, last = self._layers(x, self._states(hx, x), None)
        if alone:
            return out.squeeze(1), self._returned(tuple(h.squeeze(1) for h in last))
        return out.transpose(0, axis), self._returned(last)

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile the step, not the loop: 35 steps in one graph take a compiler minutes, and run no faster."""
        self._compiler = functools.partial(torch.compile, *args, **options)

    def _cell(self, reading: _Reading) -> Step:
        """A step of one layer, whose state `reading` multiplies."""
        raise NotImplementedError

    # -- layers, directions, steps ------------------------------------------------------------------------------------

    def _layers(self, x: Tensor, states: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """(T, B, d), parts x (layers, B, h) -> points (T, B, h), last states"""
        free = self.manifold.free_chart
        u, time = self.manifold.ambient(x)
        mask = None
        if lengths is not None:
            mask = (torch.arange(len(x), device=x.device)[:, None] < lengths).unsqueeze(-1).unbind(0)
        last: list[State] = []
        for layer in range(self.num_layers):
            outs = []
            for way in ("", "_reverse")[: 1 + self.bidirectional]:
                state = tuple(part[len(last)] for part in states)
                out, end = self._steps(u, time, f"l{layer}{way}", state, free, mask)
                outs.append(out)
                last.append(end)
            u = torch.cat(outs, -1) if self.bidirectional else outs[0]
            if layer + 1 < self.num_layers:
                u = F.dropout(u, self.dropout, self.training)
                time = free.ambient(u)[1]
        h, *flat = (torch.stack(part) for part in zip(*last, strict=True))
        return self.manifold.point(u), (self.manifold.point(h), *flat)

    def _steps(
        self, u: Tensor, time: Tensor | None, name: str, state: State, free: Manifold, mask: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, State]:
        """One layer in one direction, in free coordinates.   (T, B, d), (T, B, times) -> (T, B, h)"""
        inputs = F.linear(u, getattr(self, f"weight_ih_{name}"), getattr(self, f"bias_ih_{name}"))
        reading_time = None
        if time is not None:
            # /√d: as in `Linear`
            inputs = inputs + F.linear(time / math.sqrt(u.shape[-1]), getattr(self, f"time_weight_ih_{name}"))
            reading_time = getattr(self, f"time_weight_hh_{name}").mT / math.sqrt(self.hidden_size)
        weight, bias = getattr(self, f"weight_hh_{name}"), getattr(self, f"bias_hh_{name}")
        step = self._cell(_Reading(free, weight, bias, reading_time))
        if self._compiler is not None and not torch.compiler.is_compiling():
            step = self._compiler(step)
        outs: list[Tensor] = []
        gates, backwards = inputs.unbind(0), name.endswith("_reverse")
        for t in range(len(gates) - 1, -1, -1) if backwards else range(len(gates)):
            new = step(gates[t], state)
            if mask is not None:  # past its end a sequence keeps its state; before its end it has none from there
                new = tuple(torch.where(mask[t], a, b) for a, b in zip(new, state, strict=True))
            state = new
            outs.append(state[0])
        return torch.stack(outs[::-1] if backwards else outs), state

    # -- states -------------------------------------------------------------------------------------------------------

    def _states(self, hx: Any, x: Tensor) -> State:
        """In free coordinates, zeros by default: the origin.   -> parts x (layers, B, h)"""
        size = (self.num_layers * (1 + self.bidirectional), x.shape[1], self.hidden_size)
        require_width(x, self.input_size, self)
        if hx is None:
            return (x.new_zeros(size),) * self.parts
        given: State = hx if isinstance(hx, tuple) else (hx,)
        if [part.shape for part in given] != [size] * self.parts:
            shapes = ", ".join(str(tuple(part.shape)) for part in given)
            raise ValueError(f"{self._get_name()}: a state {shapes}; give {self.parts} x {size}")
        return (self.manifold.ambient(given[0])[0], *given[1:])

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """What torch's own layers ask of their input."""
        require_width(input, self.input_size, self)
        super().check_input(input, batch_sizes)

    def _returned(self, states: State) -> Any:
        return states if self.parts > 1 else states[0]

    def _get_name(self) -> str:
        return type(self).__name__.removeprefix("_Flat")

    def _matrices(self) -> list[tuple[str, Tensor]]:
        names = [name for names in self._all_weights for name in names if name.startswith("weight")]
        return [(name, getattr(self, name)) for name in names]


def _packed_like(packed: PackedSequence, out: Tensor, lengths: Tensor) -> PackedSequence:
    """(T, B, h) in the order of the batch, packed as the input was."""
    if packed.sorted_indices is not None:
        out, lengths = out.index_select(1, packed.sorted_indices), lengths[packed.sorted_indices.cpu()]
    data = pack_padded_sequence(out, lengths)
    return PackedSequence(data.data, data.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


class RNN(_Recurrent):
    """h' = P(tanh(W_x x + W_h h + b)); both products read the time.   (T, B, d) -> (T, B, h), (layers, B, h)

    Called as torch.nn.RNN. In flat space it is that one.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, L = torch.ones(7, 5, 3), Lorentz()
    >>> [tuple(t.shape) for t in RNN(3, 4, L)(x)]  # all states, which are points, and the last
    [(7, 5, 4), (1, 5, 4)]
    >>> RNN(3, 4, Euclidean()).state_dict().keys() == nn.RNN(3, 4).state_dict().keys()
    True
    """

    mode = "RNN_TANH"

    def _cell(self, reading: _Reading) -> Step:
        return lambda gates, state: ((gates + reading(state[0])).tanh(),)


class GRU(_Recurrent):
    """h' = (1 - z) of the way from h to h̃ = P(tanh(…)), coordinate by coordinate.

    (T, B, d) -> (T, B, h), (layers, B, h).   h' = translate(lift((1 - z)·lower(translate(h̃, -h))), h); for the same z
    in all coordinates it lies on the geodesic, and no coordinate becomes larger than in both (`gated`). Gates are
    σ(W_x x + W_h h + b). reset="after" the product with h: r·(W h + b), as torch and cuDNN have it. reset="before" it:
    W(r·h) + b, as in the paper.
    Called as torch.nn.GRU. In flat space it is that one.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, L = torch.ones(7, 5, 3), Lorentz()
    >>> [tuple(t.shape) for t in GRU(3, 4, L, num_layers=2)(x)]
    [(7, 5, 4), (2, 5, 4)]
    >>> GRU(3, 4, Euclidean()).state_dict().keys() == nn.GRU(3, 4).state_dict().keys()
    True
    """

    mode = "GRU"

    def __init__(self, *args: Any, reset: Literal["after", "before"] = "after", **options: Any):
        if reset not in ("after", "before"):
            raise ValueError(f'reset="{reset}": choose "after" or "before" the product')
        super().__init__(*args, **options)
        self.reset = reset

    def _cell(self, reading: _Reading) -> Step:
        h, free = self.hidden_size, reading.manifold
        to_gates, to_candidate = reading.split(2 * h)

        def after(gates: Tensor, state: State) -> State:
            read = reading(state[0])
            r, z = (gates[:, : 2 * h] + read[:, : 2 * h]).sigmoid().chunk(2, -1)
            candidate = torch.addcmul(gates[:, 2 * h :], r, read[:, 2 * h :]).tanh()
            return (gated(state[0], candidate, z, free),)

        def before(gates: Tensor, state: State) -> State:
            r, z = (gates[:, : 2 * h] + to_gates(state[0])).sigmoid().chunk(2, -1)
            candidate = (gates[:, 2 * h :] + to_candidate(r * state[0])).tanh()
            return (gated(state[0], candidate, z, free),)

        return after if self.reset == "after" else before


def gated(h: Tensor, candidate: Tensor, z: Tensor, manifold: Manifold) -> Tensor:
    """(1 - z) of the way from h to the candidate, no coordinate larger than in both, in free coordinates.

    (B, d) x 3 -> (B, d).   In flat space and on geodesics none is. Elsewhere a gate a coordinate can turn the way by an
    angle: from radius r it may end at 2r, and after some steps nothing is finite. The bound keeps states where tanh
    puts candidates.

    >>> from horosphere.geometry import Lorentz
    >>> h, candidate = torch.tensor([[0.9, -0.9]]), torch.tensor([[-0.5, 0.9]])
    >>> gated(h, candidate, torch.tensor([[0.0, 0.0]]), Lorentz()).round(decimals=3)  # all the way
    tensor([[-0.5000,  0.9000]])
    """
    most = torch.maximum(h.abs(), candidate.abs())
    return torch.clamp(part_way(h, candidate, 1 - z, manifold), -most, most)


class LSTM(_Recurrent):
    """c' = f·c + i·tanh(g) is flat, h' = P(o·tanh(c')) is a point.   (T, B, d) -> (T, B, h), 2 x (layers, B, h)

    Called as torch.nn.LSTM. In flat space it is that one.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> out, (h, c) = LSTM(3, 4, Lorentz())(torch.ones(7, 5, 3))
    >>> out.shape, torch.equal(out[-1], h[0])
    (torch.Size([7, 5, 4]), True)
    >>> LSTM(3, 4, Euclidean()).state_dict().keys() == nn.LSTM(3, 4).state_dict().keys()
    True
    """

    mode = "LSTM"
    parts = 2

    def _cell(self, reading: _Reading) -> Step:
        def step(gates: Tensor, state: State) -> State:
            i, f, g, o = (gates + reading(state[0])).chunk(4, -1)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c

        return step


# -- in flat space ----------------------------------------------------------------------------------------------------


class _FlatRNN(RNN, nn.RNN):
    forward = nn.RNN.forward
    nonlinearity = "tanh"


class _FlatGRU(GRU, nn.GRU):
    forward = nn.GRU.forward


class _FlatLSTM(LSTM, nn.LSTM):
    forward = nn.LSTM.forward


TORCHS: dict[type, type] = {RNN: _FlatRNN, GRU: _FlatGRU, LSTM: _FlatLSTM}
