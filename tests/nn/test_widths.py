"""Points of another width than a layer reads: one kind of error, one line, whatever the layer and its geometry."""

import re

import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz
from horosphere.nn import (
    GRU,
    LSTM,
    RNN,
    AdditiveAttention,
    Attention,
    BatchNorm1d,
    BatchNorm2d,
    Classifier,
    Conv1d,
    Conv2d,
    DecoderLayer,
    EncoderLayer,
    Experts,
    FeedForward,
    LatentAttention,
    LatentSizes,
    LayerNorm,
    Linear,
    Maxout,
    MixtureOfExperts,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    Router,
    SlotLinear,
    SlotNorm,
    SlotResidual,
    SwiGLU,
    TokenHead,
)
from horosphere.nn.clustering import ClusterMixer, ClusterSizes
from tests.nn.samples import manifold

W, B = 8, 6  # the width, and another
SIZES = LatentSizes(q_latent=None, kv_latent=8, nope=4, rope=4, value=4)
PICTURE = ClusterSizes(heads=2, head_width=4, map_size=8, windows=2, patch_centres=4, window_centres=4)
# what is made, what it is called with where points have w coordinates, and who says it
LAYERS = {
    "linear": (lambda m: Linear(W, 3, m), lambda w: torch.zeros(5, w), "Linear"),
    "classifier": (lambda m: Classifier(W, 3, m), lambda w: torch.zeros(5, w), "Classifier"),
    "maxout": (lambda m: Maxout(W, 3, 2, m), lambda w: torch.zeros(5, w), "Maxout"),
    "feed forward": (lambda m: FeedForward(W, 3, m), lambda w: torch.zeros(5, w), "Linear"),
    "layer norm": (lambda m: LayerNorm(W, m), lambda w: torch.zeros(5, w), "LayerNorm"),
    "rms norm": (lambda m: RMSNorm(W, m), lambda w: torch.zeros(5, w), "RMSNorm"),
    "residual": (lambda m: Residual(W, m), lambda w: (torch.zeros(5, w), torch.zeros(5, W)), "Residual"),
    "residual's y": (lambda m: Residual(W, m), lambda w: (torch.zeros(5, W), torch.zeros(5, w)), "Residual"),
    "batch norm": (lambda m: BatchNorm1d(W, m), lambda w: torch.zeros(5, w), "BatchNorm1d"),
    "batch norm of maps": (lambda m: BatchNorm2d(W, m), lambda w: torch.zeros(2, w, 3, 3), "BatchNorm2d"),
    "conv1d": (lambda m: Conv1d(W, 3, 1, m), lambda w: torch.zeros(2, w, 5), "Conv1d"),
    "conv2d": (lambda m: Conv2d(W, 3, 1, m), lambda w: torch.zeros(2, w, 5, 5), "Conv2d"),
    "rnn": (lambda m: RNN(W, 3, m), lambda w: torch.zeros(4, 2, w), "RNN"),
    "gru": (lambda m: GRU(W, 3, m), lambda w: torch.zeros(4, 2, w), "GRU"),
    "lstm": (lambda m: LSTM(W, 3, m), lambda w: torch.zeros(4, 2, w), "LSTM"),
    "attention": (lambda m: MultiHeadAttention(W, 2, m), lambda w: torch.zeros(2, 5, w), "MultiHeadAttention"),
    "memory": (
        lambda m: MultiHeadAttention(W, 2, m),
        lambda w: (torch.zeros(2, 5, W), torch.zeros(2, 5, w)),
        "MultiHeadAttention",
    ),
    "additive": (
        lambda m: AdditiveAttention(W, 3, 4, m),
        lambda w: (torch.zeros(2, 1, w), torch.zeros(2, 5, 3)),
        "Linear",
    ),
    "encoder": (lambda m: EncoderLayer(W, 2, 9, m), lambda w: torch.zeros(2, 5, w), "MultiHeadAttention"),
    "decoder": (
        lambda m: DecoderLayer(W, 2, 9, m),
        lambda w: (torch.zeros(2, 5, W), torch.zeros(2, 5, w)),
        "MultiHeadAttention",
    ),
    "slot linear": (lambda m: SlotLinear(W, 3, m), lambda w: torch.zeros(5, w), "SlotLinear"),
    "slot norm": (lambda m: SlotNorm(W, m), lambda w: torch.zeros(5, w), "SlotNorm"),
    "slot residual": (
        lambda m: SlotResidual(W, m),
        lambda w: (torch.zeros(5, w), torch.zeros(5, W)),
        "SlotResidual",
    ),
    "causal": (lambda m: Attention(W, 2, 4, m), lambda w: (torch.zeros(2, 5, w), None), "SlotLinear"),
    "latent": (lambda m: LatentAttention(W, 2, m, SIZES), lambda w: (torch.zeros(2, 5, w), None), "SlotLinear"),
    "gated": (lambda m: SwiGLU(W, 3, m), lambda w: torch.zeros(5, w), "SlotLinear"),
    "router": (lambda m: Router(W, 4, 2, m), lambda w: torch.zeros(2, 5, w), "Router"),
    "experts": (
        lambda m: Experts(3, W, 4, m),
        lambda w: (torch.zeros(5, w), torch.zeros(5, 1, dtype=torch.long)),
        "Experts",
    ),
    "mixture": (lambda m: MixtureOfExperts(W, 4, m, 3, 1, 1), lambda w: torch.zeros(2, 5, w), "Router"),
    "head": (lambda m: TokenHead(W, 9, m), lambda w: torch.zeros(2, 5, w), "TokenHead"),
    "hyperplanes": (lambda m: TokenHead(W, 9, m, "hyperplane"), lambda w: torch.zeros(2, 5, w), "TokenHead"),
}
SLOTS = {"attention", "memory", "encoder", "decoder", "causal", "latent", "gated", "router", "experts", "mixture"}
SLOTS |= {"slot linear", "slot norm", "slot residual", "head", "hyperplanes"}


def called(layer, given):
    return layer(*given) if isinstance(given, tuple) else layer(given)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("name", ["euclidean", "lorentz", "poincare"])
@pytest.mark.parametrize("other", [B, 1, W + 1])
def test_a_wrong_width_is_told_in_one_line(kind, name, other):
    if name == "poincare" and kind in SLOTS:
        pytest.skip("slots are for the other two")
    make, inputs, who = LAYERS[kind]
    layer = make(manifold(name)).eval()
    called(layer, inputs(W))
    line = re.escape(f"{who}: x of shape (") + rf".*\) has {other} coordinates along dim -?\d; give points of {W}$"
    with pytest.raises(UserError, match=line) as error:
        called(layer, inputs(other))
    assert "\n" not in str(error.value)


def test_a_map_of_another_width():
    mixer = ClusterMixer(W, PICTURE)
    with pytest.raises(UserError, match=r"ClusterMixer: x of shape \(1, 8, 8, 6\) has 6 coordinates along dim -1"):
        mixer(torch.zeros(1, 8, 8, B))


def test_points_without_the_axis():
    with pytest.raises(UserError, match=r"Conv2d: x of shape \(8, 5\) has no dim -3; give points of 8$"):
        Conv2d(W, 3, 1, Lorentz())(torch.zeros(W, 5))


def test_a_product_of_other_dimensions():
    with pytest.raises(UserError, match="Residual: x of shape"):
        Residual(6, manifold("product"))(torch.zeros(5, 7), torch.zeros(5, 7))


@pytest.mark.parametrize("m", [Euclidean(), Lorentz()])
def test_nothing_is_left_of_it_in_a_compiled_graph(m):
    """One graph, with no more operations than the layer has without the check."""
    ops = []

    def backend(graph, inputs):
        ops.append([node for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    layer = Linear(W, W, m)
    torch.compile(layer, fullgraph=True, backend=backend)(torch.zeros(5, W))
    assert len(ops) == 1
    names = [str(node.target) for node in ops[0]]
    assert not any("shape" in name or "size" in name or "assert" in name for name in names), names
