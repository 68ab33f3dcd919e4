"""Instruments that look into a language model: its table of tokens, and what it does while it reads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from horosphere.errors import UserError
from horosphere.evaluate.perplexity import evaluating
from horosphere.geometry import Euclidean, Manifold
from horosphere.measure.ricci import Ricci, point_ricci
from horosphere.measure.tokens import ExpertLoad, TokenRadius, attention_distance, expert_load, token_radius
from horosphere.nn import MixtureOfExperts, Router
from horosphere.nn.eager import eager
from horosphere.progress import Update

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from horosphere.data.tokens import TokenFile
    from horosphere.models.helm import HelmForCausalLM

ENTRIES = 2**25  # attention weights in fp32 at once, 128 MB
CHUNK = 2**24  # tokens counted at once
READ = 32  # rows of held-out text that a run's model reads
NEIGHBOURS = 10  # that a token is joined to
EDGES = 300  # edges whose Ricci curvature is measured: gives the mean to about ±0.01, in seconds
ALIKE = 1e-3  # radii that differ by less than this share are one
SEEN = 10  # a word seen less often is no good example
SPACE = "␣"  # how a label shows one


# -- the table --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def token_points(model: HelmForCausalLM) -> tuple[Tensor, Manifold]:
    """The embeddings as points of the stream's manifold, with 0 in the slot of the time.   -> (V, d)

    >>> from horosphere.models.helm import HelmForCausalLM, helm_config
    >>> points, _ = token_points(HelmForCausalLM(helm_config("helm-d-tiny", vocab_size=50, num_hidden_layers=1)))
    >>> points.shape, points[:, 0].abs().max()
    (torch.Size([50, 128]), tensor(0.))
    """
    manifold = model.model.manifold
    return manifold.slots.space(model.model.embed_tokens.weight).detach(), manifold


def token_counts(tokens: TokenFile, vocab_size: int) -> np.ndarray:
    """How often each token occurs.   -> (V,) int64

    >>> from horosphere.data.tokens import TokenFile
    >>> tokens = TokenFile(np.array([0, 2, 2, 1]), bos=0, vocab_size=4, text_bytes=3, documents=1)
    >>> token_counts(tokens, 4)
    array([1, 1, 2, 0])
    """
    counts = np.zeros(vocab_size, np.int64)
    for start in range(0, len(tokens), CHUNK):
        part = np.bincount(tokens.tokens[start : start + CHUNK])
        if len(part) > vocab_size:
            raise UserError(
                f"the text holds token {len(part) - 1}, and the model knows {vocab_size}: "
                "use the tokenizer the model was trained with"
            )
        counts[: len(part)] += part
    return counts


def token_labels(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> list[str]:
    """What each token spells, in one line that shows spaces; "" for tokens the tokenizer does not have.   -> V labels

    >>> from horosphere.data.tokenizer import train_tokenizer
    >>> labels = token_labels(train_tokenizer(["the cat"], vocab_size=257), 258)
    >>> len(labels), labels[0], labels[-1]
    (258, '<|endoftext|>', '')
    """
    known = min(len(tokenizer), vocab_size)
    spelled = [tokenizer.decode([i]).replace(" ", SPACE) for i in range(known)]
    return [text if text.isprintable() else repr(text)[1:-1] for text in spelled] + [""] * (vocab_size - known)


def told_apart(labels: Sequence[str]) -> list[str]:
    """The labels, with their number where there are several of one name: parts of a character all look alike.

    >>> told_apart(["a", "�", "b", "�", ""])
    ['a', '� #1', 'b', '� #3', '#4']
    """
    times = Counter(labels)
    alone = [bool(label) and times[label] == 1 for label in labels]
    return [label if own else f"{label} #{i}".strip() for i, (label, own) in enumerate(zip(labels, alone, strict=True))]


def token_kind(text: str) -> str:
    """What a token is for people who read.

    >>> [token_kind(text) for text in (" the", "ing", " 12", ").", "\\n  ", "�")]
    ['word start', 'inside', 'number', 'punctuation', 'space', 'part of a character']
    """
    bare = text.strip()
    if not bare:
        return "space"
    if "\N{REPLACEMENT CHARACTER}" in bare:
        return "part of a character"
    if bare.isnumeric():
        return "number"
    if not any(map(str.isalnum, bare)):
        return "punctuation"
    return "word start" if text[0].isspace() else "inside"


def token_columns(tokenizer: PreTrainedTokenizerFast, size: int) -> dict[str, list[Any]]:
    """Of the first tokens: kind, length in characters, and number. A tokenizer that was trained has the frequent first.

    >>> from horosphere.data.tokenizer import train_tokenizer
    >>> columns = token_columns(train_tokenizer(["the cat"], vocab_size=257), 40)
    >>> columns["kind"][:2], columns["length"][:2], columns["number"][:2]
    (['special', 'punctuation'], [13, 1], [0, 1])
    """
    spelled, special = [tokenizer.decode([i]) for i in range(size)], set(tokenizer.all_special_ids)
    kinds = ["special" if i in special else token_kind(text) for i, text in enumerate(spelled)]
    return {"kind": kinds, "length": [len(text.strip()) for text in spelled], "number": list(range(size))}


def word_examples(radius: TokenRadius, labels: Sequence[str], n: int, seen: int = SEEN) -> tuple[list[int], list[int]]:
    """The n words nearest to the origin and the n farthest, as indices.

    A word is a token that begins with a space, has two letters or more, and was seen at least `seen` times.

    >>> radius = TokenRadius(np.array([3.0, 1.0, 2.0]), np.array([20, 30, 40]), correlation=0.0, bins=[])
    >>> word_examples(radius, ["␣lynx", "␣the", "ing"], n=1)
    ([1], [0])
    """
    is_word = np.array([label.startswith(SPACE) and len(label) > 2 and label[1:].isalpha() for label in labels])
    words = replace(radius, counts=np.where(is_word, radius.counts, 0))
    near, far = words.examples([str(i) for i in range(len(labels))], n, seen)
    return [int(i) for i in near], [int(i) for i in far]


@torch.no_grad()
def flat_noise(points: Tensor, manifold: Manifold, seed: int = 0) -> Tensor:
    """Gaussian noise in flat space: as many points, and as wide in each principal direction.

    (N, d) -> (N, min(N, d)) float64: randn · σ/√N with σ the singular values of the centred `lower` of the points.

    >>> flat_noise(torch.eye(3), Euclidean()).shape
    torch.Size([3, 3])
    """
    coordinates = manifold.lower(points.double()).cpu()
    spread = torch.linalg.svdvals(coordinates - coordinates.mean(0)) / len(points) ** 0.5
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(points), len(spread), generator=generator, dtype=torch.float64) * spread


def ricci_beside_noise(points: Tensor, manifold: Manifold, seed: int = 0, **options: Any) -> tuple[Ricci, Ricci]:
    """`point_ricci` of the points (N, d), and of `flat_noise` with their spread. Only the difference says something.

    >>> points = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    >>> ricci, noise = ricci_beside_noise(points, Euclidean(), neighbours=5)
    >>> abs(ricci.mean - noise.mean) < 0.1  # these points are flat noise themselves
    True
    """
    noise = flat_noise(points, manifold, seed)
    return point_ricci(points, manifold, seed=seed, **options), point_ricci(noise, Euclidean(), seed=seed, **options)


# -- the model at work ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ExpertCurvature:
    """c of one layer's experts, whose curvature is -c."""

    layer: int
    start: Tensor  # (E,) routed experts, then shared ones
    learned: Tensor  # (E,)
    routed: int


@dataclass(frozen=True, eq=False)
class LanguageStats:
    """What a model does with a text.

    A field is None or empty where the model has no such part: a dense one has no experts, a flat one no curvature.
    """

    length: int  # of the rows it read
    attention_distance: Tensor  # (layers, H) tokens back
    expert_load: ExpertLoad | None  # of the layers below
    expert_layers: list[int]  # that have experts
    curvatures: list[ExpertCurvature]  # of the layers that learn them
    temperature: Tensor | None  # (layers,) τ/√n
    residual: Tensor | None  # (layers, 2) weights of the attention's and of the feed-forward's output; means over slots
    starts: tuple[float, float] = (1.0, 1.0)  # of both


def inspect(model: HelmForCausalLM, tokens: Tensor, progress: Update | None = None) -> LanguageStats:
    """Let the model read token rows (B, T), and watch.

    One layer's attention weights are in memory at a time, of as many rows as ENTRIES allows.
    progress(rows read, note) is called after each part.

    >>> from horosphere.models.helm import HelmForCausalLM, helm_config
    >>> model = HelmForCausalLM(helm_config("helm-d-tiny", vocab_size=50, num_hidden_layers=1))
    >>> inspect(model, torch.zeros(2, 9, dtype=torch.long)).attention_distance.shape  # layers, heads
    torch.Size([1, 4])
    """
    if tokens.dim() != 2 or not len(tokens) or tokens.shape[1] < 2:
        raise UserError(f"give rows of tokens (B, T) with T at least 2; these have shape {tuple(tokens.shape)}.")
    blocks: Any = model.model.layers
    heads = model.config.num_attention_heads
    mixtures = {layer: block.mlp for layer, block in enumerate(blocks) if isinstance(block.mlp, MixtureOfExperts)}
    watch, back, done = _Watch(), torch.zeros(len(blocks), heads), 0
    with (
        evaluating(model),
        eager(),
        _decisions([m.gate for m in mixtures.values()]) as counts,
    ):
        for part in tokens.split(max(1, ENTRIES // (heads * tokens.shape[1] ** 2))):
            with watch:  # force_eager: a compiled block would not show its attention
                model.model(part.to(model.device), use_cache=False)
            back += torch.cat(watch.taken()) * len(part) / len(tokens)
            done += len(part)
            if progress:
                progress(done, "reading")
    temperatures = [block.self_attn.temperature.log for block in blocks]
    # the feed-forward of a block joins the stream in the next block, or at the end
    after = [*(block.input_residual for block in blocks[1:]), model.model.output_residual]
    residuals = [part for block, last in zip(blocks, after, strict=True) for part in (block.attention_residual, last)]
    weights = [part.weight.mean() for part in residuals if part.weight is not None]
    return LanguageStats(
        length=tokens.shape[1],
        attention_distance=back,
        expert_load=expert_load(torch.stack(counts)) if counts else None,
        expert_layers=list(mixtures),
        curvatures=[c for c in (_curvature(mixture, layer) for layer, mixture in mixtures.items()) if c],
        temperature=None if None in temperatures else torch.cat(temperatures).detach().exp().cpu(),
        residual=torch.stack(weights).detach().cpu().view(-1, 2) if weights else None,
        starts=(math.exp(blocks[0].self_attn.temperature.start), residuals[0].start),
    )


class _Watch(TorchFunctionMode):
    """Notes how far heads look back, from the queries and keys of every call of torch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.distances: list[Tensor] = []

    def taken(self) -> list[Tensor]:
        taken, self.distances = self.distances, []
        return taken

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func is F.scaled_dot_product_attention:
            assert options["is_causal"], "rows without padding are read without a mask"
            self.distances.append(attention_distance(_causal_weights(args[0], args[1], options["scale"])).cpu())
        return func(*args, **options)


def _causal_weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """softmax(scale·q kᵀ) over what came before.   (B, H, T, n), (B, H, T, n) -> (B, H, T, T)"""
    scores = scale * (q @ k.mT).float()
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill_(future, -torch.inf).softmax(-1)


@contextmanager
def _decisions(routers: Sequence[Router]) -> Iterator[list[Tensor]]:
    """Tokens sent to each expert (E,) of each router, counted while the block runs."""
    counts = [torch.zeros(len(router.weight), dtype=torch.int64) for router in routers]

    def watch(router: Router, count: Tensor) -> Any:
        def add(module: nn.Module, inputs: Any, outputs: tuple[Tensor, Tensor, Tensor]) -> None:
            count.add_(torch.bincount(outputs[1].flatten().cpu(), minlength=len(count)))

        return router.register_forward_hook(add)

    handles = [watch(router, count) for router, count in zip(routers, counts, strict=True)]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def _curvature(mixture: MixtureOfExperts, layer: int) -> ExpertCurvature | None:
    routed, shared = mixture.experts, mixture.shared_experts
    if routed.c is None:
        return None
    groups = [routed] if shared is None else [routed, shared]
    start, learned = (
        torch.cat([getattr(group, name) for group in groups]).detach().float().cpu() for name in ("c0", "c")
    )
    return ExpertCurvature(layer, start, learned, len(routed.c0))


# -- all instruments together -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TokenStudy:
    """A model under every instrument, and its twins under those that compare, by name."""

    labels: list[str]  # of tokens
    radius: dict[str, TokenRadius]
    stats: dict[str, LanguageStats]
    ricci: Ricci  # of the first model's tokens, those seen
    noise: Ricci  # of flat noise with their spread

    @property
    def name(self) -> str:
        """The name of the model studied, the first."""
        return next(iter(self.radius))

    def rows(self) -> list[list[str]]:
        """Names and findings, for a table."""
        radius, stats = self.radius[self.name], self.stats[self.name]
        seen = radius.radius[radius.counts > 0]
        near, far = (", ".join(self.labels[i] for i in words) for words in word_examples(radius, self.labels, 8))
        radii = [
            ["radius", f"mean {seen.mean():.3f}, from {seen.min():.3f} to {seen.max():.3f}"],
            [
                "radius with frequency",
                f"{radius.correlation:+.2f}  (rank correlation; below 0: frequent tokens are nearer the origin)",
            ],
            *(
                [f"  the same of {name}", f"{other.correlation:+.2f}"]
                for name, other in self.radius.items()
                if name != self.name
            ),
            ["nearest words", near],
            ["farthest words", far],
        ]
        rows = [
            ["tokens", f"{len(seen):,} of {len(self.labels):,} occur in the text"],
            *(radii if np.ptp(seen) > ALIKE * seen.max() else []),  # on the sphere all have one
            ["Ricci curvature", f"{self.ricci.mean:+.3f}, of flat noise with the same spread {self.noise.mean:+.3f}"],
        ]
        for layer, back in enumerate(stats.attention_distance):
            rows.append(
                [f"layer {layer} looks back", f"{back.mean():.1f} tokens, heads {back.min():.1f} to {back.max():.1f}"]
            )
        for curvature in stats.curvatures:
            pairs = zip(curvature.start.tolist(), curvature.learned.tolist(), strict=True)
            moves = ", ".join(f"{-start:.2f} → {-learned:.2f}" for start, learned in pairs)
            rows.append([f"layer {curvature.layer} curvatures", moves])
        if stats.expert_load is not None:
            for layer, shares, dead in zip(
                stats.expert_layers, stats.expert_load.shares, stats.expert_load.dead.tolist(), strict=True
            ):
                parts = ", ".join(f"{share:.0%}" for share in shares.tolist())
                rows.append([f"layer {layer} expert load", parts + (f"; {dead} dead" if dead else "")])
        by_layer = [f"by layer; {start:g} at the start" for start in stats.starts]
        if stats.temperature is not None:
            temperatures = ", ".join(f"{t:.2f}" for t in stats.temperature.tolist())
            rows.append(["attention temperature", f"{temperatures}  ({by_layer[0]})"])
        if stats.residual is not None:
            weights = ", ".join(f"{a:.2f}/{f:.2f}" for a, f in stats.residual.tolist())
            rows.append(["residual weights", f"{weights}  (attention/feed-forward {by_layer[1]})"])
        return rows


def study(
    models: Mapping[str, HelmForCausalLM],
    labels: Sequence[str],
    counts: np.ndarray,
    tokens: Tensor,
    *,
    edges: int = EDGES,
    seed: int = 0,
    progress: Update | None = None,
) -> TokenStudy:
    """Study the first model, and compare its twins, which share its tokenizer.

    labels and counts: of the V tokens. tokens: rows (B, T) for the models to read. edges: how many have their Ricci
    curvature measured. progress(rows read by all models, note) is called as they read.
    """
    points, manifold = token_points(next(iter(models.values())))
    seen = np.flatnonzero(counts)
    if len(seen) <= NEIGHBOURS:
        raise UserError(
            f"only {len(seen)} different tokens occur in the text, too few to say anything of them. Give more text."
        )
    ricci, noise = ricci_beside_noise(
        points[torch.from_numpy(seen).to(points.device)], manifold, seed, neighbours=NEIGHBOURS, edges=edges
    )
    radius = {name: token_radius(*token_points(model), counts) for name, model in models.items()}
    stats: dict[str, LanguageStats] = {}
    for name, model in models.items():
        before = len(stats) * len(tokens)
        tick = (
            (lambda done, note, name=name, before=before: progress(before + done, f"{name}, {note}"))
            if progress
            else None
        )
        stats[name] = inspect(model, tokens, tick)
    return TokenStudy(list(labels), radius, stats, ricci, noise)


def first_rows(tokens: TokenFile, length: int) -> Tensor:
    """The first READ whole windows of a text; of a text shorter than one, all of it.   -> (B, T)

    >>> from horosphere.data.tokens import TokenFile
    >>> first_rows(TokenFile(np.arange(9), bos=0, vocab_size=9, text_bytes=9, documents=1), length=4)
    tensor([[0, 1, 2, 3],
            [4, 5, 6, 7]])
    """
    from horosphere.data.tokens import windows_in_order

    rows, counted = next(windows_in_order(tokens, min(length, len(tokens) - 1), READ))
    return rows[counted.all(1), :-1]
