"""The head of a language model: that one matrix, from wherever it lies, and how its rows share the space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.foreign import INDEX, MODEL, Unreadable, open_tensors, read_index, read_json, shown
from horosphere.geometry import Euclidean
from horosphere.runs import RUN, Run

if TYPE_CHECKING:
    from horosphere.measure.tokens import TokenRadius

HUB = "hf:"  # how a name on Hugging Face begins: a slip in a path must not reach for the network
# where models keep their parts, under the names of transformers and of the files on Hugging Face
PREFIXES = (
    "",
    "model.",
    "transformer.",
    "gpt_neox.",
    "model.decoder.",
    "decoder.",
    "backbone.",
    "language_model.",
    "language_model.model.",
    "model.language_model.",
)
HEADS = ("lm_head.weight", "embed_out.weight")
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
PROJECTIONS = ("project_out.weight",)  # of OPT: from the stream to narrower embeddings
NUMBERS = 2**24  # of the matrix at once: 64 MB in fp32


# -- one matrix out of a model ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Head:
    """logits = weight · the last state of the stream. Scalars and the gain of the last norm are not part of it."""

    weight: Tensor  # (V, d), as stored; in fp32 where it is a product
    name: str
    tensor: str  # names of the tensors read
    tied: bool  # the embeddings are the head
    dims: int  # dimensions that the rows can fill: fewer than d where OPT's embeddings are narrower than its stream
    padded: int  # rows without a token, dropped
    note: str = ""  # anything else that was done to the weight

    def told(self) -> list[list[str]]:
        """For a table."""
        padded = f", {self.padded} padded rows dropped" * bool(self.padded)
        kind = f"{self.tensor}, {len(self.weight):,} x {self.dims}, {'tied' if self.tied else 'its own'}{padded}"
        return [["model", self.name + f"  ({self.note})" * bool(self.note)], ["head", kind]]


def head(model: str | Path) -> Head:
    """The head of a folder made by save_pretrained or `horosphere train`, or of "hf:NAME" on Hugging Face.

    Reads safetensors, and no other tensor. OPT's projection is multiplied in. A head on the hyperboloid comes without
    slot 0: only its space-like part.

    >>> import tempfile
    >>> from safetensors.torch import save_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "config.json").write_text('{"model_type": "llama"}')
    ...     save_file({"lm_head.weight": torch.zeros(50, 8)}, Path(folder, "model.safetensors"))
    ...     head(folder).weight.shape
    torch.Size([50, 8])
    """
    files = _open(str(model))
    stored = files.find(HEADS)
    tied = stored is None
    if tied and _ties(files.config):
        stored = files.find(EMBEDDINGS)
    if stored is None:
        kinds = files.config.get("architectures") or [files.config.get("model_type")]
        kind = one_line(", ".join(map(str, kinds)) if isinstance(kinds, list) else kinds)
        raise UserError(
            f"{model}: {kind} has no head that predicts tokens. Give a causal language model, saved with its head."
        )
    rows, dims = files.shape(stored)
    known = min(rows, _vocabulary(files) or rows)
    weight = files.read(stored, known)
    if not weight.isfinite().all():
        raise UserError(f"{model}: {stored} is not finite. Give a model that was saved whole.")
    if not weight.is_floating_point():
        raise UserError(
            f"{model}: {stored} holds {str(weight.dtype).removeprefix('torch.')}, a quantised head. "
            "Give the model as it was trained."
        )
    tensor, note = stored, ""
    if (projection := files.find(PROJECTIONS)) is not None:
        if files.shape(projection)[0] != dims:
            raise UserError(f"{model}: {projection} has shape {files.shape(projection)}, for embeddings of {dims}")
        through = files.read(projection).float()
        weight, tensor = torch.cat([part.float() @ through for part in _parts(weight)]), f"{stored} · {projection}"
        dims = min(dims, through.shape[1])
        note = f"embeddings of {dims} dimensions, read through the projection from a stream of {through.shape[1]}"
    elif _is_lorentz(files.config):
        weight, dims = weight[:, 1:].contiguous(), dims - 1
        note = "on the hyperboloid: space-like part only, the slot of the time left out"
    return Head(weight, str(model), tensor, tied, dims, rows - known, note)


def head_counts(model: str | Path, source: str, size: int) -> np.ndarray:
    """How often each token of the model's own tokenizer occurs in a text (see `data.text.documents`).   -> (size,)"""
    from horosphere.data.tokenizer import load_tokenizer
    from horosphere.data.tokens import text_tokens
    from horosphere.measure.language import token_counts

    name = str(model)
    if name.startswith(HUB):
        require("language")
        from transformers import PreTrainedTokenizerFast

        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(name.removeprefix(HUB))
        except Exception as error:  # the library raises whatever it runs into: names, files, connections
            raise UserError(
                f"{name}: its tokenizer cannot be read ({one_line(error)}). Check the name and the connection."
            ) from error
    else:
        tokenizer = load_tokenizer(name)
    tokens = text_tokens(source, tokenizer)
    counts = token_counts(tokens, size)
    counts[tokens.bos] -= tokens.documents  # each document begins with one that is not in the text
    return counts


Fetch = Callable[[str], Path | None]  # a file of the model by its name, None when it has no such file


@dataclass(frozen=True)
class _Files:
    """A model that is not yet read."""

    model: str
    fetch: Fetch
    config: dict[str, Any]
    holder: dict[str, str]  # tensor -> name of its file

    def find(self, names: tuple[str, ...]) -> str | None:
        return next((prefix + name for name in names for prefix in PREFIXES if prefix + name in self.holder), None)

    def shape(self, name: str) -> tuple[int, int]:
        shape = self._slice(name).get_shape()
        if len(shape) != 2:
            raise UserError(
                f"{self.model}: {name} has shape {tuple(shape)}, not (vocabulary, dimensions): no head this can read"
            )
        return shape[0], shape[1]

    def read(self, name: str, rows: int | None = None) -> Tensor:
        tensor: Tensor = self._slice(name)[:rows]
        return tensor

    def _slice(self, name: str) -> Any:
        from safetensors import SafetensorError

        if (file := self.fetch(self.holder[name])) is None:
            raise UserError(
                f"{self.model}: {self.holder[name]} is missing, which holds {name}. Copy or fetch the model again."
            )
        try:
            return _handle(file).get_slice(name)
        except SafetensorError as error:
            raise UserError(
                f"{file}: {name} is not in it, whatever the index says. Copy or fetch the model again."
            ) from error


def _open(model: str) -> _Files:
    if model.startswith(HUB):
        fetch = _hub(model)
    else:
        folder = Path(model)
        if not folder.is_dir():
            raise UserError(
                f"{model}: no such folder. Give the folder of a model, or {HUB}NAME for one on Hugging Face."
            )

        def fetch(name: str) -> Path | None:
            return folder / name if (folder / name).is_file() else None

    if (about := fetch("config.json")) is not None:
        return _Files(model, fetch, _config(about), _holder(model, fetch))
    if model.startswith(HUB):
        raise UserError(f"{model}: no model (it has no config.json). Check the name.")
    return _run_under_way(folder, fetch)


def _hub(model: str) -> Fetch:
    require("hub")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def fetch(name: str) -> Path | None:
        try:
            return Path(hf_hub_download(model.removeprefix(HUB), name))
        except Exception as error:  # the library raises whatever it runs into: names, permissions, connections
            offline = isinstance(error, LocalEntryNotFoundError)  # no connection, and no copy
            if isinstance(error, EntryNotFoundError) and not offline:
                return None
            raise UserError(
                f"{model}: {name} cannot be fetched ({one_line(error)}). "
                "Check the name, your access to it and the connection."
            ) from error

    return fetch


def _run_under_way(folder: Path, fetch: Fetch) -> _Files:
    """A run of `horosphere train` that is not exported yet: its last checkpoint."""
    if fetch(RUN) is None:
        where = "Give a folder made by save_pretrained or `horosphere train`"
        raise UserError(f"{folder}: no model (it has neither config.json nor {RUN}). {where}.")
    run = Run.open(folder, "language")
    parts = sorted(run.checkpoint().glob("model-*.safetensors"))
    # a handle, not a dict
    holder = {name: str(part.relative_to(folder)) for part in parts for name in _handle(part).keys()}  # noqa: SIM118
    return _Files(str(folder), fetch, {"model_type": "helm", **run.about.recipe["model"]}, holder)


def _holder(model: str, fetch: Fetch) -> dict[str, str]:
    """Tensor -> name of its file. The index of a sharded model says it, without a look at the shards."""
    if (single := fetch(MODEL)) is not None:
        return dict.fromkeys(_handle(single).keys(), MODEL)
    if (index := fetch(INDEX)) is None:
        raise UserError(
            f"{model}: no {MODEL}. "
            "Save it again with save_pretrained: a pytorch_model.bin may run code, and is never opened."
        )
    try:
        return read_index(index)
    except Unreadable as error:
        raise UserError(f"{index}: a damaged index ({error}). Save or fetch the model again.") from error


def _handle(file: Path) -> Any:
    """An open file. Its header is read, its tensors are not."""
    try:
        return open_tensors(file)
    except Unreadable as error:
        raise UserError(f"{file}: a damaged file ({error}). Copy or fetch the model again.") from error


def _ties(config: dict[str, Any]) -> bool:
    """Whether the embeddings are the head. Where an old configuration does not say, transformers' default decides."""
    if (said := _setting(config, "tie_word_embeddings")) is not None:
        return bool(said)
    kind = config.get("model_type")
    if kind == "helm":
        from horosphere.models.helm import HelmConfig

        return bool(HelmConfig.tie_word_embeddings)
    require("language")
    from transformers import CONFIG_MAPPING

    return kind in CONFIG_MAPPING and bool(getattr(CONFIG_MAPPING[kind], "tie_word_embeddings", False))


def _is_lorentz(config: dict[str, Any]) -> bool:
    if config.get("model_type") != "helm":
        return False
    from horosphere.models.helm import HelmConfig

    return str(config.get("geometry", HelmConfig.geometry)) == "lorentz"


def _setting(config: dict[str, Any], name: str) -> Any:
    """A setting of the text model. Models that also see or hear keep those apart."""
    text = config.get("text_config")
    return config.get(name, text.get(name) if isinstance(text, dict) else None)


def _vocabulary(files: _Files) -> int | None:
    """One more than the largest token, from the tokenizer's file, or from the configuration, which counts padding."""
    if (file := files.fetch("tokenizer.json")) is not None:
        content = _json(file)
        try:
            vocabulary = content["model"]["vocab"]
            ids = [len(vocabulary) - 1] if isinstance(vocabulary, list) else list(vocabulary.values())
            ids += [token["id"] for token in content.get("added_tokens") or []]
            if not all(type(number) is int and number >= 0 for number in ids):
                raise ValueError("tokens are numbered from 0")
            return max(ids) + 1
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{file}: a damaged tokenizer ({one_line(error)}). Save it again with save_pretrained."
            ) from error
    size = _setting(files.config, "vocab_size")
    return size if isinstance(size, int) and size > 0 else None


def _json(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = read_json(file)
    except Unreadable as error:
        raise UserError(f"{file}: a damaged file ({error}). Save or fetch the model again.") from error
    return content


def _config(file: Path) -> dict[str, Any]:
    """Of its settings those that are asked for here are of their kinds."""
    config = _json(file)
    for name, kind in (("model_type", str), ("tie_word_embeddings", bool), ("geometry", str)):
        if not isinstance(value := _setting(config, name), kind | None):
            raise UserError(f"{file}: a damaged file ({name} is {shown(value)}). Save or fetch the model again.")
    return config


# -- how its rows share the space -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlap:
    """Mean of (ŵ_i·ŵ_j)² over pairs of different unit rows.

    >>> overlap = Overlap(mean_square=0.02, dims=100)
    >>> overlap.isotropic, overlap.times_isotropic
    (0.01, 2.0)
    """

    mean_square: float
    dims: int

    @property
    def isotropic(self) -> float:
        """The mean square overlap of vectors that point anywhere: 1/dims."""
        return 1 / self.dims

    @property
    def times_isotropic(self) -> float:
        return self.mean_square * self.dims


@dataclass(frozen=True, eq=False)
class HeadGeometry:
    """How the rows of a head share the space."""

    rows: int
    dims: int
    raw: Overlap
    centred: Overlap  # the mean row subtracted first
    trimmed: Overlap  # and then the largest principal components: a few directions that all tokens share
    components: int  # how many of them
    effective_dims: float  # participation ratio (Σλ)²/Σλ² of the covariance's eigenvalues
    norm_mean: float
    norm_std: float
    empty: int  # rows of length zero, left out of every overlap
    by_frequency: TokenRadius | None  # norms against counts, where there are counts

    def told(self) -> list[list[str]]:
        """For a table."""
        overlaps = {
            "overlap": self.raw,
            "  centred": self.centred,
            f"  without {self.components} components": self.trimmed,
        }
        rows = [[name, f"{o.mean_square:.3e}  ({o.times_isotropic:.2f} times 1/m)"] for name, o in overlaps.items()]
        rows.append(["effective dimensions", f"{self.effective_dims:.1f}"])
        rows.append(["norms", f"{self.norm_mean:.3f} ± {self.norm_std:.3f}"])
        if self.by_frequency is not None:
            rows.append(["norms follow frequency", f"{self.by_frequency.correlation:.2f}  (rank correlation)"])
        return rows


@torch.no_grad()
def head_geometry(
    W: Tensor, counts: np.ndarray | None = None, dims: int | None = None, components: int | None = None
) -> HeadGeometry:
    """Overlaps, effective dimension and norms of the rows of W (V, d).

    Overlaps are exact, (|ŴᵀŴ|² - V)/(V(V - 1)) in O(V d²), without a V x V matrix.
    dims: dimensions that the rows can fill, where fewer than d.
    components: principal components taken off for `trimmed`. None: d/100, at least one.

    >>> W = torch.randn(500, 20, generator=torch.Generator().manual_seed(0))
    >>> round(head_geometry(W).raw.times_isotropic, 1)  # random rows are isotropic
    1.0
    """
    if W.dim() != 2 or len(W) < 2:
        raise UserError(f"a head has shape (vocabulary, dimensions), two rows or more; this has {tuple(W.shape)}")
    dims = W.shape[1] if dims is None else dims
    components = max(1, dims // 100) if components is None else components
    if not 0 < components < dims:
        raise UserError(
            f"{components} principal components out of {dims} dimensions: take at least one, and leave at least one"
        )
    norms = torch.cat([part.double().norm(dim=1) for part in _parts(W)])
    if not norms.isfinite().all():
        raise UserError(f"row {int((~norms.isfinite()).nonzero()[0])} of the head is not finite: the model is damaged")
    if (empty := int((norms == 0).sum())) > len(W) - 2:
        raise UserError(f"{empty} of {len(W)} rows are zero: an overlap needs two that are not")
    kept = W if not empty else W[norms > 0]
    mean = torch.stack([part.double().sum(0) for part in _parts(kept)]).sum(0) / len(kept)
    covariance = _gram(kept, lambda x: x - mean.to(x.dtype)) / len(kept)
    top = _principal(covariance, components)

    def trim(x: Tensor) -> Tensor:
        x = x - mean.to(x.dtype)
        return x - (x @ top.to(x.dtype)) @ top.T.to(x.dtype)

    spread = covariance.square().sum()
    from horosphere.measure.tokens import token_radius

    return HeadGeometry(
        rows=len(W),
        dims=dims,
        raw=Overlap(_mean_square(kept, lambda x: x), dims),
        centred=Overlap(_mean_square(kept, lambda x: x - mean.to(x.dtype)), dims),
        trimmed=Overlap(_mean_square(kept, trim), dims - components),
        components=components,
        effective_dims=float(covariance.trace().square() / spread) if spread > 0 else 0.0,
        norm_mean=float(norms.mean()),
        norm_std=float(norms.std(correction=0)),
        empty=empty,
        by_frequency=None if counts is None else token_radius(W, Euclidean(), counts),
    )


def _mean_square(W: Tensor, change: Callable[[Tensor], Tensor]) -> float:
    """Mean square overlap of different rows, each changed and brought to length one.

    A row that the change reduces to rounding errors is left out.
    """

    def unit(x: Tensor) -> Tensor:
        y = change(x)
        length = y.norm(dim=1, keepdim=True)
        return torch.where(length > 16 * torch.finfo(x.dtype).eps * x.norm(dim=1, keepdim=True), y / length, 0)

    gram = _gram(W, unit)
    rows = round(float(gram.trace()))  # each row has length one, and adds one to the trace
    return float((gram.square().sum() - rows) / (rows * (rows - 1))) if rows > 1 else math.nan


def _gram(W: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Σ over rows of change(w)ᵀ change(w): products in fp32 (fp64 for fp64), the sum in fp64.   (V, d) -> (d, d)"""
    total = torch.zeros(W.shape[1], W.shape[1], dtype=torch.float64, device=W.device)
    for part in _parts(W):
        x = change(part if part.dtype == torch.float64 else part.float())
        total += x.T @ x
    return total


def _principal(covariance: Tensor, count: int) -> Tensor:
    """The eigenvectors of the largest eigenvalues: (d, d) -> (d, count)"""
    from scipy.linalg import eigh

    d = len(covariance)
    return torch.from_numpy(eigh(covariance.cpu().numpy(), subset_by_index=[d - count, d - 1])[1]).to(covariance.device)


def _parts(W: Tensor) -> Iterator[Tensor]:
    yield from W.split(max(1, math.ceil(NUMBERS / W.shape[1])))
