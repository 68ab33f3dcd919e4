"""HELM in other people's hands: Trainer, peft, torchao, accelerate, torch.compile, and transformers' own switches.

Each of these was tried with the real client, and each had failed or, worse, had gone on with wrong numbers.
"""

import copy

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

pytest.importorskip("transformers", reason="language models need transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")

from transformers import AttentionInterface, AutoModelForCausalLM, StaticCache, Trainer, TrainingArguments
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from horosphere.errors import UserError
from horosphere.models.helm import HelmConfig, HelmForCausalLM, helm_config
from tests.models.test_helm import DENSE, FORMS, MICE, model, tokens


def rows(count: int = 16, length: int = 9) -> list[dict[str, list[int]]]:
    """Rows of different length, filled up with -100: micro-batches then do not weigh alike."""
    ids = tokens(count, length)
    labels = ids.clone()
    for i in range(count):
        labels[i, length - i % 7 :] = -100
    return [{"input_ids": a.tolist(), "labels": b.tolist()} for a, b in zip(ids, labels, strict=True)]


def trainer(m: torch.nn.Module, folder: object, **options: object) -> Trainer:
    asked = {"max_steps": 2, "learning_rate": 1e-2, "logging_steps": 1, "report_to": [], "use_cpu": True, **options}
    quiet = {"disable_tqdm": True, "save_strategy": "no", "lr_scheduler_type": "constant", "optim": "sgd"}
    arguments = TrainingArguments(output_dir=str(folder), **{**quiet, **asked})
    return Trainer(m, arguments, train_dataset=rows(), eval_dataset=rows())


def history(t: Trainer, name: str) -> list[float]:
    return [entry[name] for entry in t.state.log_history if name in entry]


# -- Trainer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "mice", "dense, hyperplanes"])
def test_accumulated_batches_are_one_batch(form, tmp_path):
    """2 rows four times give the loss and the step of 8 rows once: the loss is a mean over all that were asked."""
    losses, ends = [], []
    for size, times in ((8, 1), (2, 4)):
        m = model(**{**FORMS[form], "balance_loss": 0.0})
        t = trainer(m, tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=times)
        t.train()
        losses.append(history(t, "loss"))
        ends.append([p.detach().clone() for p in m.parameters()])
    assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), atol=2e-3, rtol=1e-4)
    assert_close(ends[1], ends[0], atol=1e-5, rtol=1e-4)
    assert 3 < losses[0][0] < 6  # log 97 = 4.57


def test_the_balance_loss_is_shared_by_accumulated_batches():
    """Each of four parts of a step brings a quarter of it."""
    m = model(shake=0.1, **MICE, balance_loss=0.25).train()
    batch, labels = tokens(8), tokens(8)
    asked = {"labels": labels, "num_items_in_batch": torch.tensor(8 * 19)}
    whole = m(batch, **asked).loss
    assert_close(whole, m(batch, labels=labels).loss)
    asked = [{**asked, "input_ids": batch[i : i + 2], "labels": labels[i : i + 2]} for i in range(0, 8, 2)]
    assert_close(sum(m(**part).loss for part in asked), whole)


def test_an_evaluation_has_a_loss(tmp_path):
    m = model(**DENSE)
    often = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 1, "save_steps": 1}
    best = {"load_best_model_at_end": True, "save_only_model": True, **often}
    t = trainer(m, tmp_path, per_device_eval_batch_size=16, **best)
    t.train()
    found = t.evaluate()["eval_loss"]
    assert found == pytest.approx(min(history(t, "eval_loss")), abs=1e-5)
    ids, labels = (torch.tensor([row[name] for row in rows()]) for name in ("input_ids", "labels"))
    assert found == pytest.approx(m.eval()(ids, labels=labels).loss.item(), abs=1e-5)


def test_routers_are_rebalanced_without_being_asked(tmp_path):
    """Once a step, by the tokens of all its parts; not in an evaluation, and not where the router is frozen."""
    m = model(shake=0.1, **MICE, balance_speed=0.25)
    router = m.model.layers[1].mlp.gate
    t = trainer(m, tmp_path, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2)
    t.train()
    moved = router.e_score_correction_bias.abs()
    assert moved.max() == 0.5  # after the first and the second step; the third's tokens wait for the next
    assert router.load.sum() == 2 * 2 * 9 * 2
    bias = router.e_score_correction_bias.clone()
    m.eval()(tokens())
    assert torch.equal(router.e_score_correction_bias, bias)
    m.after_step()
    assert router.load.sum() == 0
    bias = router.e_score_correction_bias.clone()
    m.train()(tokens())  # `after_step` was that step's
    assert torch.equal(router.e_score_correction_bias, bias)
    m.requires_grad_(False)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    optimizer.step()
    m(tokens())
    assert torch.equal(router.e_score_correction_bias, bias)


# -- adapters and quantised weights -----------------------------------------------------------------------------------


def lora(m: HelmForCausalLM, *targets: str) -> torch.nn.Module:
    """With adapters that are not at their zero."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    adapted = peft.get_peft_model(m, peft.LoraConfig(r=4, target_modules=list(targets), init_lora_weights=False))
    return adapted.eval()


def stepwise(m: torch.nn.Module, ids: Tensor) -> Tensor:
    """Logits of tokens that come one by one."""
    past, logits = None, []
    for i in range(ids.shape[1]):
        out = m(input_ids=ids[:, i : i + 1], past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, [*logits, out.logits]
    return torch.cat(logits, 1)


@pytest.mark.parametrize("form", ["mice", "mice twin", "latent, no query latent", "dense"])
def test_adapters_are_there_in_cached_decoding(form):
    names = ["q_proj", "k_proj", "v_proj"] if form == "dense" else ["kv_b_proj", "kv_a_proj_with_mqa"]
    bare = model(shake=0.1, **FORMS[form])
    plain = bare(tokens()).logits
    m = lora(bare, *names)
    full = m(input_ids=tokens()).logits
    assert (full - plain).abs().max() > 0.1
    assert_close(stepwise(m, tokens()), full, atol=1e-4, rtol=1e-4)
    merged = m.merge_and_unload()
    assert_close(merged(tokens()).logits, full, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_an_adapter_of_the_head_gives_a_loss(form):
    if FORMS[form].get("tie_word_embeddings"):
        pytest.skip("peft has no adapter for a head whose weights are the embedding's")
    m = lora(model(**FORMS[form]), "lm_head").train()
    out = m(input_ids=tokens(), labels=tokens())
    assert out.loss.shape == ()
    out.loss.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for name, p in m.named_parameters() if "lora_A" in name)
    logits = m.eval()(input_ids=tokens()).logits[:, :-1].float()
    assert_close(m(input_ids=tokens(), labels=tokens()).loss, cross_entropy(logits, tokens()[:, 1:]))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Int8(Tensor):
    """A matrix that can multiply and nothing else, as those of quantisers are."""

    @staticmethod
    def __new__(cls, weight: Tensor) -> "Int8":
        return Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype)

    def __init__(self, weight: Tensor):
        self.scale = weight.abs().amax(-1, keepdim=True) / 127
        self.whole = (weight / self.scale).round().to(torch.int8)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.linear:
            x, weight = args[:2]
            return function(x, weight.scale * weight.whole, *args[2:])
        return super().__torch_function__(function, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(f"{function} of a quantised matrix")


def quantised_by_hand(layer: torch.nn.Linear) -> None:
    layer.weight = torch.nn.Parameter(Int8(layer.weight.detach()), requires_grad=False)


def quantised_by_torchao(layer: torch.nn.Linear) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(layer, quantization.Int8WeightOnlyConfig(version=2))


@pytest.mark.parametrize("quantise", [quantised_by_hand, quantised_by_torchao])
@pytest.mark.parametrize("form", ["dense", "mice", "mice twin"])
def test_int8_weights_are_used_as_they_are(form, quantise):
    m = model(**FORMS[form]).requires_grad_(False)
    exact = m(tokens()).logits
    for layer in m.modules():
        if isinstance(layer, torch.nn.Linear):
            quantise(layer)
    full = m(tokens()).logits
    assert 0 < (full - exact).abs().max() < 0.05 * exact.abs().max() + 0.02
    assert_close(stepwise(m, tokens()), full, atol=1e-3, rtol=1e-3)
    assert m(tokens(), labels=tokens()).loss.isfinite()
    with torch.enable_grad():  # where several matrices would be joined to one product
        assert_close(m(tokens()).logits, full)


# -- another vocabulary -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [80, 97, 120])
def test_another_vocabulary_keeps_what_was_known(form, size):
    m = model(shake=0.1, **FORMS[form])
    ids = tokens() % 80
    before, kept = m(ids).logits.detach(), min(97, size)
    m.resize_token_embeddings(size)
    assert type(m.lm_head).__name__ == "TokenHead"
    assert type(m.get_input_embeddings()).__name__ == "Embedding"
    after = m(ids, labels=ids)
    assert after.logits.shape[-1] == size == m.config.vocab_size
    assert_close(after.logits[..., :kept], before[..., :kept], atol=1e-5, rtol=1e-5)
    assert_close(after.loss, cross_entropy(after.logits[:, :-1], ids[:, 1:]))
    m.train()(ids, labels=ids).loss.backward()
    if m.config.tie_word_embeddings:
        assert m.lm_head.weight is m.model.embed_tokens.weight


def test_tokens_that_were_added_are_saved(tmp_path):
    m = model(shake=0.1, **DENSE, head="hyperplane")
    m.resize_token_embeddings(100, mean_resizing=False)
    m.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_close(again(tokens()).logits, m(tokens()).logits)


# -- torch.compile and accelerate -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "dtype"), [("mice", torch.float32), ("mice", torch.float16), ("mice twin", torch.bfloat16)]
)
def test_a_mixture_compiles_in_every_precision(form, dtype):
    """aot_eager: all of torch.compile but the making of machine code. It is where grouped products are refused."""
    torch._dynamo.reset()
    m = model(**{**FORMS[form], "num_hidden_layers": 2}).to(dtype).train()
    m(tokens(), labels=tokens()).loss.backward()
    grads = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    m.compile(backend="aot_eager", fullgraph=True)
    m(tokens(), labels=tokens()).loss.backward()
    assert_close([p.grad for p in m.parameters()], grads, atol=1e-2 if dtype != torch.float32 else 1e-5, rtol=1e-2)


@pytest.mark.parametrize("where", ["cpu", "disk"])
@pytest.mark.parametrize("form", ["dense", "mice", "mice twin", "dense, hyperplanes"])
def test_weights_may_stay_elsewhere_until_they_are_needed(form, where, tmp_path):
    """accelerate brings the weights of a module when the module is called."""
    from accelerate import cpu_offload, disk_offload

    m = model(shake=0.1, **FORMS[form])
    full, loss = m(tokens()).logits, m(tokens(), labels=tokens()).loss
    away = copy.deepcopy(m)
    away.tie_weights()
    if where == "cpu":
        cpu_offload(away, torch.device("cpu"))
    else:
        disk_offload(away, tmp_path, torch.device("cpu"))
    assert next(away.model.layers[1].parameters()).device.type == "meta"
    assert_close(away(tokens()).logits, full)
    assert_close(stepwise(away, tokens()), full, atol=1e-4, rtol=1e-4)
    assert_close(away(tokens(), labels=tokens()).loss, loss)


# -- what transformers may be asked for -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_switches_of_the_configuration_are_obeyed(form):
    m = model(**FORMS[form])
    plain = m(tokens())
    m.config.output_hidden_states = True
    assert len(m(tokens()).hidden_states) == len(m.model(tokens()).hidden_states) == 4
    assert m(tokens(), output_hidden_states=False).hidden_states is None
    m.config.output_hidden_states = False
    for asked in (m(tokens(), return_dict=False), m.model(tokens(), return_dict=False)):
        assert isinstance(asked, tuple)
    m.config.return_dict = False
    assert isinstance(m(tokens()), tuple)
    assert isinstance(m.model(tokens()), tuple)
    assert_close(m(tokens())[0], plain.logits)
    assert_close(m(tokens(), return_dict=True).logits, plain.logits)
    assert_close(m(tokens(), labels=tokens())[0], m(tokens(), labels=tokens(), return_dict=True).loss)


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_attention_are_given_or_refused(form):
    m = model(shake=0.1, **FORMS[form])
    plain = m(tokens()).logits
    assert m(tokens(), output_attentions=False).attentions is None
    usual = m(tokens(), output_attentions=True)
    m.set_attn_implementation("flex_attention")
    with pytest.raises(UserError, match='load the model with attn_implementation="eager"'):
        m(tokens(), output_attentions=True)
    m.set_attn_implementation("eager")
    out = m(tokens(), output_attentions=True)
    assert_close(usual.attentions, out.attentions)
    assert_close(out.logits, plain, atol=1e-5, rtol=1e-5)
    assert len(out.attentions) == 3
    for weights in out.attentions:
        assert weights.shape == (2, 4, 20, 20)
        assert_close(weights.sum(-1), torch.ones(2, 4, 20))
        assert not weights.triu(1).any()
    past = m(tokens()[:, :-1], use_cache=True).past_key_values
    step = m(tokens()[:, -1:], past_key_values=past, output_attentions=True)
    for weights, whole in zip(step.attentions, out.attentions, strict=True):
        assert_close(weights, whole[:, :, -1:], atol=1e-5, rtol=1e-4)
    m.config.output_attentions = True
    assert len(m(tokens()).attentions) == len(m.model(tokens()).attentions) == 3


@pytest.mark.parametrize("form", ["dense", "dense twin", "mice, full attention", "mice"])
@pytest.mark.parametrize("flat", [False, True])
def test_attention_of_another_engine_is_called(form, flat):
    """As engines register theirs: by name, found by `layer_idx`, with arguments that pass through the model.

    flat: heads come back side by side, as vLLM's do.
    """
    seen = []

    def foreign(module, query, key, value, attention_mask, scaling, dropout=0.0, instances=None, **_):
        seen.append((module.layer_idx, module.is_causal, instances, query.shape[1] // key.shape[1]))
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, is_causal=attention_mask is None, scale=scaling
        ).transpose(1, 2)
        return (out.flatten(-2) if flat else out), None

    AttentionInterface.register("foreign", foreign)
    AttentionMaskInterface.register("foreign", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    m = model(shake=0.1, **FORMS[form])
    assert m._supports_attention_backend
    expected = m(tokens()).logits
    m.set_attn_implementation("foreign")
    assert_close(m(tokens(), instances="theirs").logits, expected, atol=1e-5, rtol=1e-5)
    assert seen == [(i, True, "theirs", 1) for i in range(3)]
    assert m.config.num_key_value_heads == m.config.num_attention_heads


@pytest.mark.parametrize(
    ("form", "implementation"), [("dense", "eager"), ("dense", "flex_attention"), ("mice", "eager")]
)
@torch.no_grad()
def test_attention_by_any_implementation_is_the_same(form, implementation):
    m = model(shake=0.1, **FORMS[form])
    ids = tokens(3, 16)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    expected = m(ids, attention_mask=mask).logits
    m.set_attn_implementation(implementation)
    assert_close(m(ids).logits[0], expected[0], atol=1e-4, rtol=1e-4)
    assert_close(m(ids, attention_mask=mask).logits[mask.bool()], expected[mask.bool()], atol=1e-4, rtol=1e-4)


def test_transformers_knows_the_name_where_it_looks_for_causal_models():
    """Its pipelines, its server and its label smoothing go by these names."""
    assert MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["helm"] == "HelmForCausalLM"


# -- what configurations say ------------------------------------------------------------------------------------------


def test_a_dense_configuration_has_no_latents(tmp_path):
    """Others take a model with `kv_lora_rank` for one of latent attention."""
    latents = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    for name in ("helm-d-tiny", "llama-tiny"):
        config = helm_config(name)
        config.save_pretrained(tmp_path)
        again = HelmConfig.from_pretrained(tmp_path)
        assert [getattr(c, latent) for c in (config, again) for latent in latents] == [None] * 10
    assert HelmConfig(**MICE).kv_lora_rank == 12
    assert HelmConfig(**{**MICE, "attention": "full"}).kv_lora_rank is None
    latent = HelmConfig(attention="latent")
    assert [getattr(latent, name) for name in latents] == [None, 64, 32, 16, 32]


@pytest.mark.parametrize("form", FORMS)
def test_names_that_stay_in_fp32_are_names_of_the_model(form, tmp_path):
    m = model(**FORMS[form])
    m.save_pretrained(tmp_path)
    names = {name for key in m.state_dict() for name in key.split(".")}
    for each in (m, m.model):
        assert each._keep_in_fp32_modules_strict <= names
    for dtype in (torch.float16, torch.bfloat16):
        again = HelmForCausalLM.from_pretrained(tmp_path, dtype=dtype)
        for name, value in again.state_dict().items():
            steers = set(name.split(".")) & m._keep_in_fp32_modules_strict
            assert value.dtype == (torch.float32 if steers else dtype), name
        scalars = [name for name, p in again.named_parameters() if p.numel() == 1]
        assert all(again.state_dict()[name].dtype == torch.float32 for name in scalars)


def test_positions_that_were_never_learned_are_named():
    m = model(**FORMS["mice, learned positions"])
    with pytest.raises(UserError, match="position 64: this model learned 64 positions"):
        m(tokens(1, 3), position_ids=torch.tensor([[62, 63, 64]]))
    cache = StaticCache(config=m.config, max_cache_len=80)
    with pytest.raises(UserError, match="this model learned 64 positions"):
        m.generate(tokens(1, 60), max_new_tokens=10, past_key_values=cache, eos_token_id=None, disable_compile=True)
    assert m(tokens(1, 3), position_ids=torch.tensor([[61, 62, 63]])).logits.shape == (1, 3, 97)


@pytest.mark.parametrize(
    "asked",
    [
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    ],
)
def test_rotations_that_nobody_reads_are_refused(asked):
    with pytest.raises(UserError, match=r"rope_parameters: .* is not read here; give rope_theta alone"):
        HelmConfig(**DENSE, **asked)


def test_a_plain_rotation_may_be_said_in_either_way(tmp_path):
    config = HelmConfig(**DENSE, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    assert config.rope_theta == 500.0
    config.save_pretrained(tmp_path)
    assert HelmConfig.from_pretrained(tmp_path).rope_theta == 500.0
    with pytest.raises(UserError, match=r"rope_theta=100\.0, and rope_parameters say 500\.0"):
        HelmConfig(**DENSE, rope_theta=100.0, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
