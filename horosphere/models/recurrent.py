"""Language models of the classics: a recurrent network, and Bengio's window of words, in any geometry.

Tokens are points of a table, and logits signed distances to one hyperplane a token. In flat space both are what torch
makes of them. Everything that Hugging Face does with a causal language model works: `generate`, `save_pretrained`.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from horosphere.errors import UserError
from horosphere.geometry import Manifold, geometry
from horosphere.models.hugging_face import Shared, SharedConfig, next_labels, register
from horosphere.nn import GRU, LSTM, RNN, Classifier, Embedding, Linear
from horosphere.nn.head import token_loss
from horosphere.settings import Curvature, Decay, Few, Size, check

CELLS = {"rnn": RNN, "gru": GRU, "lstm": LSTM}


class ClassicConfig(SharedConfig, PretrainedConfig):
    """What both kinds share. Tokens begin about 1 from the origin."""

    # Hugging Face's own, and what the data decide
    no_settings = frozenset(
        {f.name for f in fields(PretrainedConfig)}
        | {"max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache"}
    )

    geometry: Literal["euclidean", "lorentz", "poincare"] = "euclidean"
    curvature: Curvature = 1.0  # c of a curved geometry, whose curvature is -c
    vocab_size: Size = 128
    embedding_size: Size = 64  # of a token
    hidden_size: Size = 256
    max_position_embeddings: Size = 64  # the length of the windows it learned from; it reads any
    use_cache: bool = True

    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 0
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        check(self)

    def sized(self, width: int) -> dict[str, Any]:
        """What changes in a network of this width."""
        return {"hidden_size": width}

    def manifold(self) -> Manifold:
        """One for the whole network: its layers share it."""
        return geometry(self.geometry, 1, self.curvature)


class RecurrentConfig(ClassicConfig):
    """Of a recurrent network.

    >>> RecurrentConfig(cell="lstm", hidden_size=128).num_hidden_layers
    1
    """

    model_type = "horosphere-recurrent"
    no_settings = ClassicConfig.no_settings | {"cell"}  # which the name of the model says

    cell: str = "gru"
    num_hidden_layers: Few = 1
    dropout: Decay = 0.0  # between layers

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.cell not in CELLS:
            raise UserError(f"cell={self.cell}: choose from {', '.join(CELLS)}")


class WindowConfig(ClassicConfig):
    """Of a network that sees so many tokens.

    >>> WindowConfig(context=5).context
    5
    """

    model_type = "horosphere-window"

    context: Few = 8  # tokens that it sees


class _Classic(Shared, PreTrainedModel, GenerationMixin):
    """From states to losses and logits. What was read before comes back as `past_key_values`, whatever it is."""

    supports_gradient_checkpointing = False
    lm_head: Classifier

    def __init__(self, config: ClassicConfig):
        super().__init__(config)
        self.manifold = config.manifold()
        std = config.embedding_size**-0.5
        self.embed_tokens = Embedding(config.vocab_size, config.embedding_size, self.manifold, std=std)
        self.lm_head = Classifier(config.hidden_size, config.vocab_size, self.manifold)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: Tensor | int | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast:
        """labels: (B, T), the inputs again, -100 where nothing is asked. Or the next tokens, as `shift_labels`.

        position_ids: (B, T), 0 where a document begins; without them each row is one document.
        Padding on the right needs no attention_mask, and there is none on the left.
        """
        states, past = self.read(input_ids, position_ids, past_key_values)
        asked = next_labels(labels, options)
        logits = self.lm_head(states[:, -logits_to_keep:] if logits_to_keep else states)
        loss = None
        if asked is not None:
            every = logits if logits.shape[1] == asked.shape[1] else self.lm_head(states)
            loss = token_loss(lambda x: x, every, asked, 1, num_items_in_batch)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past if use_cache else None)

    def read(self, tokens: Tensor, positions: Tensor | None, past: Any) -> tuple[Tensor, Any]:
        """(B, T) -> points (B, T, h), and what to go on from."""
        raise NotImplementedError

    def prepare_inputs_for_generation(self, input_ids: Tensor, **kwargs: Any) -> dict[str, Any]:
        past = kwargs.get("past_key_values")
        return {
            "input_ids": input_ids if past is None else input_ids[:, -1:],
            "past_key_values": past,
            "use_cache": kwargs.get("use_cache"),
        }

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # there are no keys and values

    def _init_weights(self, module: nn.Module) -> None:
        """Layers have made their own weights, and a folder holds all of them."""


class RecurrentForCausalLM(_Classic):
    """Next-token prediction by an RNN, a GRU or an LSTM.

    >>> model = RecurrentForCausalLM(RecurrentConfig(cell="gru", vocab_size=100, geometry="lorentz"))
    >>> model(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 100])
    """

    config_class = RecurrentConfig

    def __init__(self, config: RecurrentConfig):
        super().__init__(config)
        sizes = config.embedding_size, config.hidden_size, self.manifold, config.num_hidden_layers
        dropout = config.dropout if config.num_hidden_layers > 1 else 0.0
        self.recurrent: nn.Module = CELLS[config.cell](*sizes, batch_first=True, dropout=dropout)
        self.post_init()

    def read(self, tokens: Tensor, positions: Tensor | None, past: Any) -> tuple[Tensor, Any]:
        x = self.embed_tokens(tokens)
        states, last = self.recurrent(x, past) if positions is None else self._by_document(x, positions, past)
        return states, last

    def _by_document(self, x: Tensor, positions: Tensor, past: Any) -> tuple[Tensor, Any]:
        """Every document is a sequence of its own, from the origin on. The first of a row goes on from the past.

        (B, T, d), (B, T) -> (B, T, h), the last states of the rows
        """
        begins = positions == 0
        begins[:, 0] = True
        starts = begins.flatten().nonzero().flatten().tolist()
        lengths = [b - a for a, b in zip(starts, [*starts[1:], positions.numel()], strict=True)]
        first = torch.tensor([start % positions.shape[1] == 0 for start in starts], device=x.device)

        def at_first(part: Tensor) -> Tensor:
            """(layers, B, h) -> (layers, documents, h), 0 but for the first of each row"""
            states = part.new_zeros(len(part), len(starts), part.shape[-1])
            return states.index_copy(1, first.nonzero().flatten(), part)

        packed = pack_sequence(x.flatten(0, 1).split(lengths), enforce_sorted=False)
        out, last = self.recurrent(packed, None if past is None else _each(past, at_first))
        padded, _ = pad_packed_sequence(out, batch_first=True)
        states = torch.cat([row[:n] for row, n in zip(padded, lengths, strict=True)]).view(*positions.shape, -1)
        return states, _each(last, lambda part: part[:, first.roll(-1)])  # the last of a row stands before a first

    def state_shape(self, rows: int) -> tuple[int, int, int, int]:
        """Of what is kept between batches of so many rows: parts, layers, rows, coordinates (`Carried`).

        >>> RecurrentForCausalLM(RecurrentConfig(cell="lstm", hidden_size=8)).state_shape(rows=3)
        (2, 1, 3, 8)
        """
        cell: Any = self.recurrent
        return cell.parts, cell.num_layers, rows, cell.hidden_size

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one. torch's own layers have kernels, and compilers refuse them."""
        return [self.lm_head] if self.manifold.flat else [self.recurrent, self.lm_head]


def _each(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A change of every part of a state: of h, or of (h, c)."""
    return tuple(map(change, state)) if isinstance(state, tuple) else change(state)


class WindowForCausalLM(_Classic):
    """Next-token prediction from the vectors of the last few tokens, side by side (Bengio et al. 2003).

    P(tanh(W [x₁ … xₙ] + b)), whose time is that of the joint point. Before a document there are its bos tokens.

    >>> model = WindowForCausalLM(WindowConfig(vocab_size=100, context=5))
    >>> model(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 100])
    """

    config_class = WindowConfig

    def __init__(self, config: WindowConfig):
        super().__init__(config)
        self.hidden = Linear(config.context * config.embedding_size, config.hidden_size, self.manifold)
        self.post_init()

    def read(self, tokens: Tensor, positions: Tensor | None, past: Any) -> tuple[Tensor, Any]:
        before = self.config.context - 1
        bos = self.config.bos_token_id or 0
        if past is None:
            past = tokens.new_full((len(tokens), before), bos)
        known = torch.cat((past, tokens), 1)
        seen = known.unfold(1, before + 1, 1)  # (B, T, n), the newest last
        if positions is not None:
            back = torch.arange(before, -1, -1, device=tokens.device)
            seen = torch.where(back > positions.unsqueeze(-1), bos, seen)
        u = self.manifold.ambient(self.embed_tokens(seen))[0].flatten(2)
        points = self.hidden(self.manifold.point(u))
        u = self.manifold.ambient(points)[0].tanh()
        return self.manifold.point(u), known[:, known.shape[1] - before :]

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        return [self.hidden, self.lm_head]


for made, config in ((RecurrentForCausalLM, RecurrentConfig), (WindowForCausalLM, WindowConfig)):
    register(config, made)


def recurrent_config(name: str, **changes: Any) -> RecurrentConfig:
    """Of "rnn-lm", "gru-lm" or "lstm-lm", with changes.

    >>> recurrent_config("lstm-lm", hidden_size=32).cell
    'lstm'
    """
    return RecurrentConfig(**{**changes, "cell": name.removesuffix("-lm")})
