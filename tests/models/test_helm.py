"""HELM against models no one here wrote, against its own textbook form, and in Hugging Face's hands."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

pytest.importorskip("transformers", reason="language models need transformers")

from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    StaticCache,
)

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz
from horosphere.models import helm
from horosphere.models.helm import HELM, TWINS, HelmConfig, HelmForCausalLM, helm_config
from horosphere.nn import (
    Attention,
    Embedding,
    LatentAttention,
    Router,
    SlotLinear,
    SlotResidual,
    SwiGLU,
    TokenHead,
    document_mask,
    experts,
)
from horosphere.nn.attention import AttentionForms
from tests.models import dense_reference, helm_reference

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
DENSE = {**SIZES, "head_dim": 8}
LATENT = {
    **SIZES,
    "attention": "latent",
    "q_lora_rank": 20,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
MICE = {**LATENT, "n_routed_experts": 5, "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 16}
FORMS = {
    "dense": DENSE,
    "dense twin": {**DENSE, "geometry": "euclidean"},
    "mice": MICE,
    "mice twin": {**MICE, "geometry": "euclidean"},
    "mice constant": {**MICE, "expert_curvature": "constant", "gate": "softmax"},
    "mice, full attention": {**MICE, "attention": "full", "head_dim": 8, "residual": "additive"},
    "mice, learned positions": {**MICE, "position": "learned", "n_shared_experts": 0, "num_experts_per_tok": 3},
    "dense, hyperplanes": {**DENSE, "head": "hyperplane", "tie_word_embeddings": True, "curvature": 0.5},
    "latent, no query latent": {**LATENT, "q_lora_rank": None, "position": "learned"},
    "dense, unit rows": {**DENSE, "qk_norm": True, "unit_weights": True, "residual": "interpolate", "curvature": 0.5},
    "dense twin, by distance": {**DENSE, "geometry": "euclidean", "score": "distance", "residual": "interpolate"},
    "dense twin, normed": {**DENSE, "geometry": "euclidean", "qk_norm": True},
    "sphere": {**DENSE, "geometry": "sphere", "residual": "interpolate", "unit_weights": True, "qk_norm": True},
    "sphere, centroids": {**DENSE, "geometry": "sphere"},
    "sphere, mice": {**MICE, "geometry": "sphere"},
    "mice, normed": {**MICE, "qk_norm": True},
    "mice, unit rows": {**MICE, "qk_norm": True, "unit_weights": True, "residual": "interpolate"},
}
# what is told apart, one by one
ABLATIONS = {
    "qwen3": {"geometry": "euclidean", "qk_norm": True},
    "flat distance, normed": {"geometry": "euclidean", "score": "distance", "qk_norm": True},
    "flat, unit rows": {"geometry": "euclidean", "unit_weights": True, "residual": "interpolate"},
    "dot products": {"score": "dot", "curvature": 0.5},
    "averages": {"average": "mean", "residual": "additive"},
    "normed": {"qk_norm": True, "curvature": 2.0},
    "interpolating": {"residual": "interpolate"},
    "unit rows": {"unit_weights": True, "qk_norm": True},
    "all flat but the time": {"score": "dot", "average": "mean", "residual": "additive"},
    "sphere, centroids": {"geometry": "sphere"},
    "sphere, averages": {"geometry": "sphere", "average": "mean", "residual": "additive"},
    "sphere, interpolating": {"geometry": "sphere", "residual": "interpolate", "qk_norm": True},
    "sphere, unit rows": {"geometry": "sphere", "residual": "interpolate", "unit_weights": True},
}


def model(seed: int = 0, shake: float = 0.0, **config: object) -> HelmForCausalLM:
    """`shake` moves every parameter, so that nothing is still at its zero or its one."""
    torch.manual_seed(seed)
    m = HelmForCausalLM(HelmConfig(**config)).eval()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(shake * torch.randn_like(p))
    return m


def tokens(rows: int = 2, length: int = 20, seed: int = 1) -> Tensor:
    return torch.randint(1, 97, (rows, length), generator=torch.Generator().manual_seed(seed))


# -- oracles no one here wrote ----------------------------------------------------------------------------------------


def assert_same_outputs(ours: HelmForCausalLM, theirs: torch.nn.Module) -> None:
    """Logits, those of the last tokens alone, the loss, and the stream before every block and at the end."""
    for more in ({}, {"logits_to_keep": 3}, {"logits_to_keep": torch.tensor([0, 7])}, {"labels": tokens()}):
        a, b = (m(tokens(), output_hidden_states=True, **more) for m in (ours, theirs))
        assert_close(a.logits, b.logits, atol=1e-5, rtol=0)
        assert_close(a.hidden_states, b.hidden_states, atol=1e-5, rtol=1e-5)
        if "labels" in more:
            assert_close(a.loss, b.loss, atol=1e-5, rtol=0)


@pytest.mark.parametrize("tied", [False, True])
def test_the_dense_twin_is_llama(tied):
    ours = model(shake=0.1, **DENSE, geometry="euclidean", tie_word_embeddings=tied)
    theirs = LlamaForCausalLM(LlamaConfig(**DENSE, rms_norm_eps=1e-6, tie_word_embeddings=tied)).eval()
    theirs.load_state_dict(ours.state_dict())
    assert_same_outputs(ours, theirs)


@pytest.mark.parametrize("tied", [False, True])
def test_the_dense_twin_with_normed_queries_and_keys_is_qwen3(tied):
    ours = model(shake=0.1, **DENSE, geometry="euclidean", qk_norm=True, tie_word_embeddings=tied)
    sizes = {**DENSE, "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    theirs = Qwen3ForCausalLM(Qwen3Config(**sizes, tie_word_embeddings=tied)).eval()
    fresh = {name: p.clone() for name, p in theirs.state_dict().items()}
    theirs.load_state_dict(ours.state_dict())
    assert_same_outputs(ours, theirs)
    for m in (ours, theirs):  # and the other way round
        m.load_state_dict(fresh)
    assert_same_outputs(ours, theirs)


@pytest.mark.parametrize("q_latent", [None, 20])
def test_the_mixture_twin_is_deepseek(q_latent):
    sizes = {**MICE, "q_lora_rank": q_latent, "routed_scaling_factor": 1.7}
    ours = model(shake=0.1, **sizes, geometry="euclidean")
    for router in (m for m in ours.modules() if isinstance(m, Router)):
        router.e_score_correction_bias.copy_(torch.randn(5) / 10)
    sizes.pop("attention")
    options = {
        "n_group": 1,
        "topk_group": 1,
        "rope_interleave": False,
        "norm_topk_prob": True,
        "num_key_value_heads": 4,
    }
    theirs = DeepseekV3ForCausalLM(
        DeepseekV3Config(**sizes, **options, first_k_dense_replace=1, rms_norm_eps=1e-6)
    ).eval()
    state = {k: v for k, v in ours.state_dict().items() if not k.endswith("load")}
    for name in [n for n in state if "shared_experts" in n]:  # theirs is one expert as wide as all of ours
        weight = state.pop(name)
        prefix = name.rsplit(".", 1)[0]
        if name.endswith("gate_up_proj"):
            gate, up = weight.chunk(2, 1)
            state[f"{prefix}.gate_proj.weight"], state[f"{prefix}.up_proj.weight"] = (
                gate.flatten(0, 1),
                up.flatten(0, 1),
            )
        else:
            state[f"{prefix}.down_proj.weight"] = weight.transpose(0, 1).flatten(1)
    theirs.load_state_dict(state)
    assert_same_outputs(ours, theirs)


# -- the textbook -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        *("dense", "mice", "mice constant", "mice, full attention", "mice, normed"),
        *("dense, hyperplanes", "latent, no query latent"),
    ],
)
def test_fast_forms_equal_the_textbook(form):
    """Distances, centroids and experts written out one by one, with explicit times, in fp64."""
    m = model(shake=0.1, **FORMS[form]).double()
    assert_close(m(tokens()).logits, helm_reference.logits(m, tokens()), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", ABLATIONS)
def test_every_form_of_a_dense_model_equals_its_own_textbook(form):
    m = model(shake=0.1, **DENSE, **ABLATIONS[form]).double()
    assert_close(m(tokens()).logits, dense_reference.logits(m, tokens()), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", ABLATIONS)
def test_gradients_of_every_form_of_a_dense_model_equal_those_of_its_textbook(form):
    m, ids = model(shake=0.1, **DENSE, **ABLATIONS[form]).double(), tokens(1, 7)
    m(ids).logits.square().sum().backward()
    fast = {n: p.grad for n, p in m.named_parameters()}
    m.zero_grad(set_to_none=True)
    dense_reference.logits(m, ids).square().sum().backward()
    for name, p in m.named_parameters():
        assert_close(fast[name], p.grad, atol=1e-8, rtol=1e-8, msg=lambda text, name=name: f"{name}: {text}")


def test_the_sphere_is_ngpt_but_for_values_that_are_points():
    """The formulas of Loshchilov et al. 2024 on vectors of length 1, where ours are √n long.

    Scores are √n·cos at the start. The norms before layers, which nGPT lacks, change no point at the start.
    """
    torch.manual_seed(0)
    m = model(**DENSE, **{**ABLATIONS["sphere, interpolating"], "average": "mean", "unit_weights": True}).double()
    with torch.no_grad():
        for name, p in m.named_parameters():
            if name.endswith(("residual.weight", "lengths")):  # α; s_u, s_v and s_z
                p.mul_(torch.rand_like(p) + 0.5)
    for block in m.model.layers:
        for projection in (block.self_attn.q_proj, block.self_attn.k_proj):  # ours, before the norm: heads are kept
            projection.lengths.data.fill_(1.0)
    assert_close(m(tokens()).logits, dense_reference.ngpt(m, tokens()), atol=1e-4, rtol=1e-4)


def test_forms_differ():
    """No setting that changes nothing."""
    found = [model(shake=0.1, **DENSE, **changes)(tokens()).logits for changes in ABLATIONS.values()]
    for i, one in enumerate(found):
        assert all((one - other).abs().max() > 1e-4 for other in found[:i])


def test_gradients_equal_the_textbook():
    m = model(shake=0.1, **MICE).double()
    m(tokens()).logits.square().sum().backward()
    fast = {n: p.grad for n, p in m.named_parameters()}
    m.zero_grad(set_to_none=True)
    helm_reference.logits(m, tokens()).square().sum().backward()
    for name, p in m.named_parameters():
        assert_close(fast[name], p.grad, atol=1e-8, rtol=1e-8, msg=lambda text, name=name: f"{name}: {text}")


def test_small_curvature_is_nearly_flat():
    """c -> 0, no time columns: feed-forward is the twin's, the centroid the mean, attention softmax(-|q - k|²/τ)."""
    torch.manual_seed(0)
    near, flat = Lorentz(1e-10), Euclidean()
    curved = SwiGLU(32, 48, near).double()
    twin = SwiGLU(32, 48, flat).double()
    with torch.no_grad():
        for ours, theirs in zip(curved.parameters(), twin.parameters(), strict=True):
            ours[0] = 0  # what the twin would read where the time is
            theirs.copy_(ours)
    x, y = (
        near.slots.space(torch.randn(2, 5, 32, dtype=torch.float64)),
        near.slots.space(torch.randn(2, 5, 32, dtype=torch.float64)),
    )
    assert_close(curved(near.slots.reading(x)), twin(x))
    assert_close(near.slots.join([(x, 1.0), (y, 3.0)]), (x + 3 * y) / 4)
    scores = near.slots.heads(x, torch.ones(1), query=True) @ near.slots.heads(y).mT
    assert_close(scores.softmax(-1), (-torch.cdist(x, y).square() / 2).softmax(-1), atol=1e-4, rtol=0)


# -- structure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_setting_reaches_every_layer_that_it_concerns(form):
    """Not some of them: where one layer had a form or a curvature of its own, few would notice."""
    m = model(**FORMS[form], rms_norm_eps=1e-3)
    config = m.config
    parts = list(m.modules())
    norms = [norm for block in m.model.layers for norm in (block.input_layernorm, block.post_attention_layernorm)]
    assert {norm.eps for norm in (*norms, m.model.norm)} == {1e-3}
    forms = {"additive"} if (config.residual, config.geometry) == ("centroid", "euclidean") else {config.residual}
    assert {part.form for part in parts if isinstance(part, SlotResidual)} == forms
    tables = {"sphere": "euclidean"}.get(config.geometry, config.geometry)
    for kind, name in ((Embedding, tables), (object, config.geometry)):
        rest = [
            part for part in parts if isinstance(part, kind) and (kind is Embedding or not isinstance(part, Embedding))
        ]
        spaces = [part.manifold for part in rest if hasattr(part, "manifold")]
        assert {type(space).__name__.lower() for space in spaces} == {name}
    lengths = {part.lengths is not None for part in parts if isinstance(part, SlotLinear)}
    assert lengths == ({True, False} if config.unit_weights else {False})
    if config.attention == "full":
        assert {part.forms for part in parts if isinstance(part, Attention)} == {
            AttentionForms(config.score, config.average, config.qk_norm, config.unit_weights, 1e-3)
        }
    assert {float(space.c) for space in spaces if not space.flat} <= {config.curvature}
    assert [block.self_attn.layer_idx for block in m.model.layers] == list(range(len(m.model.layers)))
    attention = LatentAttention if config.attention == "latent" else Attention
    assert {type(block.self_attn) for block in m.model.layers} == {attention}


@pytest.mark.parametrize("form", FORMS)
def test_a_hidden_state_is_where_a_shorter_model_ends(form):
    """The stream before block n is that behind the first n blocks: with the residual that block n begins with."""
    m = model(shake=0.1, **FORMS[form])
    states = m(tokens(), output_hidden_states=True).hidden_states
    blocks = m.model.layers
    assert len(states) == len(blocks) + 1
    last = m.model.output_residual
    for n in range(1, len(blocks)):
        m.model.layers, m.model.output_residual = blocks[:n], blocks[n].input_residual
        assert_close(m.model.norm(states[n]), m.model(tokens(), use_cache=False).last_hidden_state)
    m.model.layers, m.model.output_residual = blocks, last
    assert torch.equal(m.model(tokens(), use_cache=False).last_hidden_state, states[-1])
    assert_close(m.lm_head(states[-1]), m(tokens()).logits)


@pytest.mark.parametrize("form", FORMS)
def test_a_fresh_model_reads_no_time(form):
    """Every matrix that reads times has zeros there, so to still it changes nothing; elsewhere it has none."""
    m = model(**FORMS[form])
    before = {name: p.clone() for name, p in m.named_parameters()}
    for module in m.modules():
        if hasattr(module, "still_time"):
            module.still_time()
    assert all(torch.equal(p, before[name]) for name, p in m.named_parameters())
    others = ("gate.weight", "lengths")
    matrices = [p for name, p in m.model.layers.named_parameters() if p.dim() > 1 and not name.endswith(others)]
    assert len(matrices) > 9
    for weight in matrices:
        columns = (weight != 0).flatten(0, -2)
        assert torch.equal(columns.any(0), columns.all(0))  # a column is zero as a whole or nowhere
        assert columns.any(0).all() == (m.config.geometry != "lorentz")


@pytest.mark.parametrize("form", ["dense", "dense twin, normed", "sphere, centroids", "mice", "mice twin"])
def test_what_writes_to_the_stream_may_begin_smaller_where_it_is_deeper(form):
    """By √(2·layers), as in GPT-2. All else begins as without, and so do the columns of times."""
    sizes = {**FORMS[form], "hidden_size": 64, "num_attention_heads": 8}
    plain, scaled = (model(**sizes, depth_scaled_init=scaled) for scaled in (False, True))
    last = ("o_proj.weight", "down_proj.weight", "experts.down_proj")
    writers = [name for name, _ in plain.named_parameters() if name.endswith(last)]
    assert len(writers) == (8 if "mice" in form else 6)  # the first layer of a mixture is dense
    for (name, a), b in zip(plain.named_parameters(), scaled.parameters(), strict=True):
        if name in writers:
            assert_close(a.std() / b.std(), torch.tensor(6.0).sqrt(), rtol=0.1, atol=0, msg=name)
            assert torch.equal((a == 0).flatten(0, -2).all(0), (b == 0).flatten(0, -2).all(0))
        elif a.dim() > 1:
            assert_close(a.std(), b.std(), rtol=0.1, atol=0, msg=name)
        else:
            assert torch.equal(a, b)


@pytest.mark.parametrize("form", ["sphere", "mice, unit rows", "dense, unit rows"])
def test_rows_keep_length_1_after_a_step_of_any_optimizer(form):
    m = model(**FORMS[form]).train()
    for _ in range(2):
        m(tokens(), labels=tokens()).loss.backward()
        torch.optim.SGD(m.parameters(), lr=0.1).step()
    m.after_step()
    rows = [weight for module in m.modules() for weight in helm._directions(module)]
    assert len(rows) > 10
    for weight in rows:
        assert_close(weight.norm(dim=-1), torch.ones(weight.shape[:-1]))


@pytest.mark.parametrize("form", ["mice", "mice twin", "mice constant"])
def test_the_balance_loss_is_that_of_all_routers(form):
    m = model(shake=0.1, **FORMS[form], balance_loss=0.25)
    each = []
    for router in (module for module in m.modules() if isinstance(module, Router)):
        router.register_forward_hook(lambda _, __, out: each.append(out[2]))
    balance = m.model(tokens())["balance"]
    assert len(each) == 2
    assert_close(balance, each[0] + each[1])
    judged, learned = m(tokens(), labels=tokens()).loss, m.train()(tokens(), labels=tokens()).loss
    assert_close(learned, judged + 0.25 * balance)


def test_renumbering_experts_changes_nothing():
    m = model(shake=0.1, **MICE)
    before = m(tokens()).logits
    order = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        for block in m.model.layers[1:]:
            for tensor in [*block.mlp.experts.parameters(), *block.mlp.experts.buffers(), *block.mlp.gate.parameters()]:
                tensor.copy_(tensor[order])
    assert_close(m(tokens()).logits, before, atol=1e-5, rtol=1e-5)


def test_experts_at_one_curvature_are_the_constant_mixture():
    mixed, constant = model(shake=0.1, **MICE, expert_spread=(1.0, 1.0)), model(**MICE, expert_curvature="constant")
    with torch.no_grad():
        for name, p in mixed.named_parameters():
            if name.endswith("log_ratio"):
                p.zero_()
    constant.load_state_dict({k: v for k, v in mixed.state_dict().items() if not k.endswith(("log_ratio", "c0"))})
    assert_close(mixed(tokens()).logits, constant(tokens()).logits, atol=1e-5, rtol=1e-5)


def test_curvature_of_an_expert_is_learned_and_matters():
    m = model(shake=0.1, **MICE)
    m(tokens(8), labels=tokens(8)).loss.backward()
    experts = m.model.layers[1].mlp.experts
    assert experts.log_ratio.grad.count_nonzero() >= 3  # of five; some may have met no token
    before = m(tokens()).logits
    with torch.no_grad():
        experts.log_ratio += 1
    assert (m(tokens()).logits - before).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["helm-d-tiny", "helm-mice-tiny"])
def test_tokens_differ_and_experts_share_the_work_at_the_start(name):
    from horosphere.measure.tokens import token_cosine

    torch.manual_seed(0)
    m = HelmForCausalLM(helm_config(name))
    ids = torch.randint(0, 4096, (4, 256))
    states = m.model(ids, output_hidden_states=True, use_cache=False).hidden_states
    assert max(token_cosine(x.detach().flatten(0, 1)) for x in states) < 0.5
    for router in (r for r in m.modules() if isinstance(r, Router)):
        assert router.load.max() < 2.5 * router.load.mean()
        assert router.load.sum() == 4 * 256 * 2


def test_router_bias_moves_towards_balance_and_the_load_starts_again():
    torch.manual_seed(0)
    router = Router(8, 4, 2, Euclidean()).train()
    with torch.no_grad():
        router.weight.normal_()
        router.weight[0] += 0.5
    x = torch.rand(2, 300, 8)

    def spread() -> float:
        router(x)
        worst = (router.load.max() / router.load.mean()).item()
        router.rebalance(0.01)
        return worst

    first = spread()
    last = [spread() for _ in range(100)][-1]
    assert first > 1.5
    assert last < 1.2
    assert router.load.sum() == 0


def test_packed_documents_do_not_see_each_other():
    a, b = tokens(1, 7, seed=3), tokens(1, 9, seed=4)
    positions = torch.cat((torch.arange(7), torch.arange(9))).unsqueeze(0)
    for form in ("dense", "mice", "mice, learned positions"):
        m = model(shake=0.1, **FORMS[form])
        packed = m(torch.cat((a, b), 1), attention_mask=document_mask(positions), position_ids=positions).logits
        assert_close(packed, torch.cat((m(a).logits, m(b).logits), 1), atol=1e-5, rtol=1e-5)


def test_loss_in_pieces_is_the_loss(monkeypatch):
    m = model(shake=0.1, **FORMS["dense"]).train()
    labels = tokens().clone()
    labels[0, 5:9] = -100
    whole = m(tokens(), labels=labels).loss
    whole.backward()
    grads = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    monkeypatch.setattr("horosphere.nn.head.LOGITS_AT_ONCE", 97 * 7)
    logits_of, rows = TokenHead._logits, []
    monkeypatch.setattr(TokenHead, "_logits", lambda head, x: rows.append(len(x)) or logits_of(head, x))
    pieces = m(tokens(), labels=labels).loss
    assert rows == [7, 7, 7, 7, 6, 6]  # 40 in all, at most 7 at once
    pieces.backward()
    assert rows[6:] == [6, 6, 7, 7, 7, 7]  # made again, the last first: they are not kept
    assert_close(pieces, whole)
    assert_close([p.grad for p in m.parameters()], grads, atol=1e-6, rtol=1e-5)
    logits = m.eval()(tokens()).logits[:, :-1]
    assert_close(whole, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()))


def test_the_defaults_are_the_smaller_size_of_the_paper():
    default, named = HelmConfig().to_dict(), helm_config("helm-d-100m").to_dict()
    assert {name for name in default if default[name] != named[name]} == {"vocab_size"}


@pytest.mark.parametrize("name", HELM)
def test_widths_are_whole_words_of_tensor_cores(name):
    config = helm_config(name)
    for width in ("hidden_size", "intermediate_size", "vocab_size", "moe_intermediate_size"):
        assert getattr(config, width) % 64 == 0
    for width in ("head_dim", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        assert (getattr(config, width) or 0) % 8 == 0
    if config.attention == "full":
        assert config.num_attention_heads * config.head_dim == config.hidden_size


def test_learned_positions_end():
    m = model(**FORMS["mice, learned positions"])
    assert m(tokens(1, 64)).logits.shape == (1, 64, 97)
    assert m(tokens(65, 2)).logits.shape == (65, 2, 97)
    with pytest.raises(UserError, match="65 tokens: this model learned 64 positions"):
        m(tokens(1, 65))


@pytest.mark.parametrize("name", [*HELM, *TWINS])
def test_named_configurations_have_their_size(name):
    with torch.device("meta"):
        m = HelmForCausalLM(helm_config(name))
    size = sum(p.numel() for p in m.parameters())
    expected = {
        "tiny": (1e6, 3e6),
        "10m": (10e6, 11e6),
        "small": (30e6, 50e6),
        "134m": (132e6, 136e6),
        "100m": (95e6, 125e6),
        "120m": (100e6, 135e6),
        "1b": (0.8e9, 1.3e9),
    }[name.rsplit("-", 1)[1]]
    assert expected[0] < size < expected[1]
    if name in TWINS:
        with torch.device("meta"):
            curved = sum(p.numel() for p in HelmForCausalLM(helm_config(TWINS[name][0])).parameters())
        assert abs(curved / size - 1) < 0.01


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"geometry": "spherical"}, "choose from lorentz, euclidean"),
        ({"head_dim": 7}, "use 8"),
        ({"n_routed_experts": 2, "num_experts_per_tok": 3}, "1 to"),
        ({"n_routed_experts": 2, "num_experts_per_tok": 0}, "1 to"),
        ({"attention": "latent", "qk_rope_head_dim": 7}, "use 8"),
        ({"attention": "latent", "score": "distance"}, "score: latent attention has its own"),
        ({"geometry": "sphere", "curvature": 2.0}, "curvature: on the sphere"),
        ({"geometry": "sphere", "head": "hyperplane"}, "head=hyperplane: on the sphere"),
        ({"geometry": "sphere", "score": "dot"}, "score=dot: points of one length"),
        ({"unit_weights": True, "depth_scaled_init": True}, "depth_scaled_init: with unit_weights"),
    ],
)
def test_a_wrong_configuration_names_the_fix(change, words):
    with pytest.raises(UserError, match=words):
        HelmConfig(**{**DENSE, **change})


# -- Hugging Face -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("form", FORMS)
def test_cached_steps_equal_the_full_forward(form, cache):
    """Token by token, with left padding in one row and a prompt in two pieces."""
    m = model(shake=0.1, **FORMS[form])
    ids, pad = tokens(3, 16), 4
    ids[1, :pad] = 0
    mask = torch.ones_like(ids)
    mask[1, :pad] = 0
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    full = m(ids, attention_mask=mask, position_ids=positions).logits
    alone = m(ids[1:2, pad:]).logits
    assert_close(full[1, pad:], alone[0], atol=1e-4, rtol=1e-4)
    past = None if cache == "dynamic" else StaticCache(config=m.config, max_cache_len=24)
    begin = 0
    for end in [6, 9, *range(10, 17)]:
        out = m(ids[:, begin:end], mask[:, :end], positions[:, begin:end], past, use_cache=True)
        past = out.past_key_values
        real = mask[:, begin:end].bool()
        assert_close(out.logits[real], full[:, begin:end][real], atol=1e-4, rtol=1e-4)
        begin = end


@pytest.mark.parametrize("geometry", ["lorentz", "euclidean"])
def test_latent_cache_holds_what_it_says(geometry):
    m = model(**{**LATENT, "geometry": geometry})
    past = m(tokens(2, 11), use_cache=True).past_key_values
    attention = m.model.layers[0].self_attn
    assert isinstance(attention, LatentAttention)
    expected = 12 + 4 + (2 * 4 if geometry == "lorentz" else 0)
    assert attention.cache_width == expected
    assert sum(t.numel() for t in (past.layers[0].keys, past.layers[0].values)) == 2 * 11 * expected


def test_a_decoding_step_never_expands_the_history():
    m = model(shake=0.1, **LATENT)
    rows = []
    for block in m.model.layers:
        block.self_attn.kv_b_proj.register_forward_hook(lambda _, inputs, __: rows.append(inputs[0].shape[1]))
    past = m(tokens(2, 30), use_cache=True).past_key_values
    assert rows == [30, 30, 30]  # a prompt once
    rows.clear()
    m(tokens(2, 1), past_key_values=past, use_cache=True)
    assert rows == [1, 1, 1]


@pytest.mark.parametrize("form", ["dense", "mice", "mice twin", "sphere", "dense twin, by distance"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_beams": 3},
        {"do_sample": True, "top_k": 5},
        {"cache_implementation": "static", "disable_compile": True},
    ],
)
def test_generate_with_and_without_cache(form, how):
    m = model(shake=0.1, **FORMS[form], eos_token_id=None)
    ids = tokens(2, 6)
    ids[0, :2] = 0
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long(), "max_new_tokens": 8, "pad_token_id": 0, **how}
    torch.manual_seed(0)
    cached = m.generate(**inputs)
    torch.manual_seed(0)
    inputs.pop("cache_implementation", None)
    assert torch.equal(cached, m.generate(**inputs, use_cache=False))
    assert cached.shape == (2, 14)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_save_and_load(form, dtype, tmp_path):
    m = model(shake=0.1, **FORMS[form]).to(dtype)
    m.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval()
    assert isinstance(again, HelmForCausalLM)
    for (name, ours), (other, theirs) in zip(m.state_dict().items(), again.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(ours.float(), theirs.float()), name
        if name.endswith(("log_ratio", "c0")):
            assert theirs.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_curvature_is_saved_with_its_configuration(dtype, tmp_path):
    """Its mark in the state dict leaves no name behind; between networks of different curvature it is heard."""
    m = model(curvature=0.5).to(dtype)
    m.save_pretrained(tmp_path)
    again, about = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype, output_loading_info=True)
    assert not any(about.values()), about
    assert {part.c for part in again.modules() if isinstance(part, Lorentz)} == {0.5}
    again.load_state_dict(m.state_dict())
    with pytest.raises(RuntimeError, match=r"saved on Lorentz\(c=0\.5\), loaded on Lorentz\(c=1\.0\)"):
        model(curvature=1.0).load_state_dict(m.state_dict())


@pytest.mark.parametrize("form", FORMS)
def test_what_a_file_does_not_hold_starts_afresh(form, tmp_path):
    """As in a new model: Hugging Face makes weights without memory and asks for a start of those it did not find."""
    m = model(shake=0.1, **FORMS[form])
    m.save_pretrained(tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    found = [name for name in held if "layers.1" in name]
    save_file({name: held[name] for name in found}, tmp_path / "model.safetensors", {"format": "pt"})
    again, fresh = AutoModelForCausalLM.from_pretrained(tmp_path), model(seed=1, **FORMS[form])
    for (name, ours), started in zip(again.state_dict().items(), fresh.state_dict().values(), strict=True):
        if name in found:
            assert torch.equal(ours, held[name]), name
        elif ours.dim() < 2 or "c0" in name:
            assert torch.equal(ours, started), name
        else:
            times = (started == 0).flatten(0, -2).all(0)
            assert torch.equal((ours == 0).flatten(0, -2).all(0), times), name
            assert_close(ours.std(), started.std(), rtol=0.25, atol=0, msg=name)


def test_gradient_checkpointing_gives_the_same_gradients():
    m = model(shake=0.1, **MICE).train()
    m(tokens(), labels=tokens()).loss.backward()
    plain = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    assert not m.is_gradient_checkpointing
    m.gradient_checkpointing_enable()
    assert m.is_gradient_checkpointing
    m(tokens(), labels=tokens()).loss.backward()
    assert_close([p.grad for p in m.parameters()], plain)


# -- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "bound"), [(4.0, 0.1), (16.0, 1.0)])
def test_bf16_scores_stay_close_where_points_are_far_out(length, bound):
    """Scores q·k of 63 + 1 slots against fp64; a time that is merely rounded is off by 0.4 and 8.3 (spec)."""
    torch.manual_seed(0)
    L = Lorentz(1.0)
    u = torch.nn.functional.normalize(torch.randn(2, 200, 64, dtype=torch.float64), dim=-1)
    u[1] = torch.nn.functional.normalize(u[0] + 0.1 * u[1], dim=-1)  # near its query: what attention looks for
    u = (length * u).bfloat16()
    q, k = L.slots.heads(u[0], torch.ones(1), query=True).double(), L.slots.heads(u[1]).double()
    exact_q, exact_k = L.slots.heads(u[0].double(), torch.ones(1).double(), query=True), L.slots.heads(u[1].double())
    error = ((q * k).sum(-1) - (exact_q * exact_k).sum(-1)).abs().max()
    naive = (
        ((exact_q.bfloat16().double() * exact_k.bfloat16().double()).sum(-1) - (exact_q * exact_k).sum(-1)).abs().max()
    )
    assert error < bound
    assert error < naive


@pytest.mark.parametrize("form", ["dense", "dense, unit rows", "sphere", "mice", "mice, normed", "mice twin"])
@pytest.mark.filterwarnings("error:Mismatch dtype")  # of a norm: torch would go by a slower way
def test_bf16_stays_close_to_fp32(form):
    m = model(**FORMS[form])
    exact = m(tokens()).logits
    with torch.autocast("cpu", torch.bfloat16):
        auto = m(tokens()).logits
    weights = m.to(torch.bfloat16)(tokens()).logits
    for low in (auto, weights):
        assert (low.float() - exact).abs().max() < 0.05 * exact.abs().max() + 0.02


@pytest.mark.parametrize("form", ["mice", "mice twin"])
def test_experts_multiply_in_the_dtype_of_autocast(form, monkeypatch):
    """On a GPU that is half of their time."""
    seen = []
    product = experts.grouped_product
    monkeypatch.setattr(experts, "grouped_product", lambda x, *more: seen.append(x.dtype) or product(x, *more))
    m = model(**FORMS[form])
    with torch.autocast("cpu", torch.bfloat16):
        m(tokens())
    assert set(seen) == {torch.bfloat16}


@pytest.mark.parametrize("form", FORMS)
def test_several_tokens_after_a_cache_see_what_was_before_and_nothing_after(form):
    """Without a mask, as `generate` never asks: it gives one."""
    m = model(**FORMS[form]).double()
    every = tokens(2, 11)
    past = m(every[:, :6], use_cache=True).past_key_values
    assert_close(m(every[:, 6:], past_key_values=past, use_cache=True).logits, m(every).logits[:, 6:])
