"""HELM: language models that live on the hyperboloid, and their twins in flat space and on the sphere, from one code.

HELM-D is dense; HELM-MiCE has latent attention and a mixture of curvature experts. With geometry="euclidean" they are
Llama (with qk_norm Qwen3) and DeepSeek-V3, to the parameter names but for `shared_experts`: theirs is one expert as
wide as all of ours.
Everything Hugging Face does with a causal language model works: `generate`, caches, `save_pretrained`, `Trainer`.
"""

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import can_return_tuple

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Sphere, geometry
from horosphere.models.helm_sizes import HELM, TWINS
from horosphere.models.hugging_face import Engine, Shared, SharedConfig, engine_for, next_labels, register
from horosphere.nn import (
    Attention,
    Embedding,
    Experts,
    LatentAttention,
    LatentSizes,
    MixtureOfExperts,
    Router,
    SlotLinear,
    SlotNorm,
    SlotResidual,
    SwiGLU,
    TokenHead,
    rotary_angles,
)
from horosphere.nn.attention import AttentionForms, Mask, Temperature
from horosphere.nn.head import token_loss
from horosphere.nn.rotary import Angles
from horosphere.nn.slots import residual_norm, unit_rows
from horosphere.settings import Amount, Count, Curvature, Extent, Few, Natural, Positive, Range, Size, check

# of latent attention, where a configuration does not say them
LATENT_SIZES = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
STEP = 16  # inner widths of a model of another width are multiples of it
# numbers that steer a whole layer: bf16 has two or three digits for them
STEERING = frozenset(
    {"c0", "log_ratio", "temperature", "e_score_correction_bias", "load"}
    | {"input_residual", "attention_residual", "output_residual"}
)


class HelmConfig(SharedConfig, PretrainedConfig):
    """Sizes and forms, by Hugging Face's names where it has one. Widths count slots: on the hyperboloid one is time.

    `attention`, `position`, `expert_curvature`, `head`, `gate` and `geometry` are the ablations of the paper.
    `residual`, `score`, `average`, `qk_norm`, `unit_weights` and `depth_scaled_init` are ours: what a geometry brings
    along, part by part, and what makes flat twins strong.

    >>> HelmConfig(hidden_size=128, num_attention_heads=4, head_dim=32).geometry
    'lorentz'
    """

    model_type = "helm"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (Trainer adds to it)
    # Hugging Face's own, and what the data decide
    no_settings = frozenset(
        {f.name for f in fields(PretrainedConfig)}
        | {"max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache"}
    )

    geometry: Literal["lorentz", "euclidean", "sphere"] = "lorentz"  # euclidean: the twin
    curvature: Curvature = 1.0  # c of the stream, whose curvature is -c; on the sphere it would change nothing
    vocab_size: Size = 32000
    hidden_size: Size = 384
    num_hidden_layers: Few = 6
    num_attention_heads: Few = 6
    intermediate_size: Size = 1536
    max_position_embeddings: Count = 2048
    rope_theta: Positive = 10000.0
    rms_norm_eps: Positive = 1e-6
    initializer_range: Positive = 0.02
    tie_word_embeddings: bool = False
    use_cache: bool = True
    position: Literal["rotary", "learned"] = "rotary"  # rotary: HoPE
    # centroid: s·N(x + w·y); interpolate: a learned share of the way to the direction of y, as in nGPT
    residual: Literal["centroid", "additive", "interpolate"] = "centroid"
    head: Literal["ambient", "hyperplane"] = "ambient"
    # of attention; own: dot products in flat space, distances on the others
    score: Literal["own", "dot", "distance"] = "own"
    average: Literal["centroid", "mean"] = "centroid"  # of values; mean: left where an average lies
    qk_norm: bool = False  # RMSNorm of each head's queries and keys, as in Qwen3; of latent attention's rotated key
    unit_weights: bool = False  # rows of all matrices keep length 1, with learned lengths where they matter, as in nGPT
    depth_scaled_init: bool = False  # matrices that write to the stream begin √(2·layers) times smaller, as in GPT-2

    # latent: with the five sizes behind head_dim; full: without, or others would take the model for a latent one
    attention: Literal["full", "latent"] = "full"
    head_dim: Size = 64
    q_lora_rank: Size | None = None
    kv_lora_rank: Size | None = None  # 64, where attention is latent
    qk_nope_head_dim: Size | None = None  # 32
    qk_rope_head_dim: Size | None = None  # 16
    v_head_dim: Size | None = None  # 32

    n_routed_experts: Annotated[int, Range(least=0, most=1000)] = 0  # 0: dense
    num_experts_per_tok: Few = 2
    n_shared_experts: Extent = 1
    moe_intermediate_size: Size = 768
    first_k_dense_replace: Natural = 1
    expert_curvature: Literal["mixture", "constant"] = "mixture"  # mixture: each its own, learned
    # lowest and highest c of the experts at the start, in units of the stream's
    expert_spread: tuple[Curvature, Curvature] | list[Curvature] = (0.1, 2.0)
    gate: Literal["sigmoid", "softmax"] = "sigmoid"
    routed_scaling_factor: Positive = 1.0
    balance_speed: Amount = 1e-3  # of the router's bias, per step
    balance_loss: Amount = 1e-4

    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 0
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.expert_spread = list(self.expert_spread)
        self._read_rope(kwargs.pop("rope_parameters", None) or kwargs.pop("rope_scaling", None) or {})
        if kwargs.pop("num_key_value_heads", self.num_attention_heads) != self.num_attention_heads:
            raise UserError("num_key_value_heads: here every head has its own keys; give num_attention_heads alone")
        super().__post_init__(**kwargs)
        check(self)
        for name, size in {"q_lora_rank": None, **LATENT_SIZES}.items():
            setattr(self, name, None if self.attention == "full" else getattr(self, name) or size)
        self._check_forms()
        if len(self.expert_spread) != 2:
            raise UserError(f"expert_spread has {len(self.expert_spread)} numbers: give the lowest and the highest c")
        turned = self.head_dim if self.qk_rope_head_dim is None else self.qk_rope_head_dim
        if turned % 2:
            raise UserError(
                f"{turned} rotated dimensions a head: rotary positions need an even number; use {turned + 1}"
            )
        if self.n_routed_experts and not 1 <= self.num_experts_per_tok <= self.n_routed_experts:
            raise UserError(
                f"num_experts_per_tok={self.num_experts_per_tok}: choose 1 to n_routed_experts={self.n_routed_experts}"
            )

    def _check_forms(self) -> None:
        """Refuse what would change nothing."""
        if self.geometry == "sphere":
            if self.curvature != 1:
                raise UserError("curvature: on the sphere every form is a direction, which has none; leave it out")
            if self.head == "hyperplane":
                raise UserError("head=hyperplane: on the sphere an ambient head is that already; leave it out")
            if self.score != "own":
                raise UserError(f"score={self.score}: points of one length compare alike by both; leave it out")
        if self.unit_weights and self.depth_scaled_init:
            raise UserError("depth_scaled_init: with unit_weights every row has length 1; leave one of them out")
        if self.attention == "latent":
            own = {"score": "own", "average": "centroid"}
            for name, value in own.items():
                if getattr(self, name) != value:
                    raise UserError(f"{name}: latent attention has its own; leave it out, or set attention=full")

    def _read_rope(self, said: dict[str, Any]) -> None:
        """rope_theta in transformers' other form. What it says beyond that, nobody here would read."""
        kind = said.get("rope_type", said.get("type", "default"))
        odd = [f"rope_type {kind}"] * (kind != "default") + sorted(said.keys() - {"rope_type", "type", "rope_theta"})
        if odd:
            raise UserError(f"rope_parameters: {odd[0]} is not read here; give rope_theta alone")
        theta = said.get("rope_theta", self.rope_theta)
        if theta != self.rope_theta != HelmConfig.rope_theta:
            raise UserError(f"rope_theta={self.rope_theta}, and rope_parameters say {theta}: leave one of them out")
        self.rope_theta = theta

    def sized(self, width: int) -> dict[str, Any]:
        """What changes in a model of this width: as many heads as go into it, inner and latent widths in proportion."""
        head = self.hidden_size // self.num_attention_heads
        if width % head:
            raise UserError(f"width {width}: heads are {head} wide; give a multiple of that")
        inner = ("intermediate_size", "moe_intermediate_size", "q_lora_rank", "kv_lora_rank")
        known = {name: getattr(self, name) for name in inner if getattr(self, name)}
        scaled = {name: max(STEP, round(size * width / self.hidden_size / STEP) * STEP) for name, size in known.items()}
        return {"hidden_size": width, "num_attention_heads": width // head, **scaled}

    @property
    def num_key_value_heads(self) -> int:
        """As many as heads: others ask for it."""
        return self.num_attention_heads


class HelmBlock(GradientCheckpointingLayer):
    """x ⊕ y, with y from the block before; then x ⊕ attention(norm x); and y = feed-forward(norm x) for the next block.

    (B, T, d), (B, T, d) or None -> x, y, balance loss or None.   A residual and the norm behind it are one pass over
    memory. So each block begins with the residual of the one before, and the model ends with that of the last.
    """

    def __init__(self, config: HelmConfig, layer: int):
        super().__init__()
        dim, manifold = config.hidden_size, geometry(config.geometry, config.hidden_size, config.curvature)
        self.input_residual = SlotResidual(dim, manifold, config.residual) if layer else None
        self.input_layernorm = SlotNorm(dim, manifold, config.rms_norm_eps)
        lengths = config.unit_weights
        forms = AttentionForms(config.score, config.average, config.qk_norm, lengths, config.rms_norm_eps)
        self.self_attn: nn.Module
        if config.attention == "latent":
            latent: Any = [getattr(config, name) for name in ("q_lora_rank", *LATENT_SIZES)]
            sizes = LatentSizes(*latent)
            self.self_attn = LatentAttention(dim, config.num_attention_heads, manifold, sizes, layer, forms)
        else:
            self.self_attn = Attention(dim, config.num_attention_heads, config.head_dim, manifold, layer, forms)
        self.attention_residual = SlotResidual(dim, manifold, config.residual)
        self.post_attention_layernorm = SlotNorm(dim, manifold, config.rms_norm_eps)
        self.mlp: nn.Module
        if config.n_routed_experts and layer >= config.first_k_dense_replace:
            experts = (config.n_routed_experts, config.num_experts_per_tok, config.n_shared_experts)
            spread: Any = tuple(config.expert_spread) if config.expert_curvature == "mixture" else None
            gate: Any = {"form": config.gate, "scale": config.routed_scaling_factor}
            self.mlp = MixtureOfExperts(dim, config.moe_intermediate_size, manifold, *experts, spread, lengths, **gate)
        else:
            self.mlp = SwiGLU(dim, config.intermediate_size, manifold, lengths)
        for name, part in self.named_modules():
            if name.endswith(("o_proj", "down_proj")):
                part.writes = True  # to the stream: for `depth_scaled_init`

    def forward(
        self,
        x: Tensor,
        y: Tensor | None,
        angles: Angles | None,
        mask: Mask,
        past_key_values: Any = None,
        engine: Engine | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if y is None or self.input_residual is None:
            normed, x = self.input_layernorm(x, fork=True)
        else:
            normed, x = residual_norm(x, y, self.input_residual, self.input_layernorm)
        y = self.self_attn(normed, angles, mask, past_key_values, engine)
        normed, x = residual_norm(x, y, self.attention_residual, self.post_attention_layernorm)
        y = self.mlp(normed)
        y, balance = y if isinstance(y, tuple) else (y, None)
        return x, y, balance


class HelmPreTrainedModel(Shared, PreTrainedModel):
    config_class = HelmConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ("HelmBlock",)
    _skip_keys_device_placement = ("past_key_values",)
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _seen = -1  # the version of the tokens' table when rows were last brought to length 1

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Normal matrices, zero time columns. By transformers' functions, which leave loaded weights alone."""
        super()._init_weights(module)
        std = self.config.initializer_range
        depth = math.sqrt(2 * self.config.num_hidden_layers) if self.config.depth_scaled_init else 1.0
        if isinstance(module, SlotLinear) and not getattr(module.weight, "_is_hf_initialized", False):
            if getattr(module, "writes", False):
                module.weight /= depth
            module.still_time()
            if module.lengths is not None:
                init.ones_(module.lengths)
        elif isinstance(module, Embedding) and not getattr(module.weight, "_is_hf_initialized", False):
            module.weight.copy_(module.manifold.lift(module.manifold.slots.space(module.weight)))
        elif isinstance(module, nn.RMSNorm):
            init.ones_(module.weight)
        elif isinstance(module, SlotResidual) and module.weight is not None:
            init.constant_(module.weight, module.start)
        elif isinstance(module, Temperature) and module.log is not None:
            init.constant_(module.log, module.start)
        elif isinstance(module, Router):
            init.normal_(module.weight, std=std)
            init.zeros_(module.e_score_correction_bias)
            init.zeros_(module.load)
        elif isinstance(module, Experts):
            init.normal_(module.gate_up_proj, std=std)
            init.normal_(module.down_proj, std=std / depth)
            if not getattr(module.gate_up_proj, "_is_hf_initialized", False):
                module.still_time()
            if module.lengths is not None:
                init.ones_(module.lengths)
            if module.spread is not None:
                init.copy_(module.c0, module.start_curvature())
                init.zeros_(module.log_ratio)
        if self.config.unit_weights and not _is_loaded(module):
            for weight in _directions(module):
                unit_rows(weight)

    def _follow_steps(self) -> None:
        """`after_step`, after a step of whoever trains. Compiled or sharded models need to call that themselves."""
        if not self.training or torch.compiler.is_compiling():
            return
        if self.config.unit_weights and self.get_input_embeddings().weight._version != self._seen:
            self.unit_rows()
        for block in (module for module in self.modules() if isinstance(module, HelmBlock)):
            if isinstance(block.mlp, MixtureOfExperts) and not isinstance(block, FSDPModule):
                block.mlp.gate.follow(self.config.balance_speed)

    def unit_rows(self) -> None:
        """Bring the rows of all matrices to length 1 again."""
        for module in self.modules():
            for weight in _directions(module):
                unit_rows(weight)
        self._seen = self.get_input_embeddings().weight._version


def _is_loaded(module: nn.Module) -> bool:
    """Whether its matrices came from a file."""
    return any(getattr(p, "_is_hf_initialized", False) for p in module.parameters(recurse=False))


def _directions(module: nn.Module) -> list[Tensor]:
    """The matrices of a module itself whose rows are directions, in a model of unit rows. Points are none."""
    if isinstance(module, Experts):
        return [module.gate_up_proj, module.down_proj]
    if isinstance(module, SlotLinear) or (isinstance(module, Embedding) and module.manifold.flat):
        return [module.weight]
    return []


@dataclass
class HelmOutput(BaseModelOutputWithPast):
    balance: Tensor | None = None  # the balance loss of all routers


class HelmModel(HelmPreTrainedModel):
    """Tokens to points of the stream.   (B, T) -> (B, T, d)"""

    def __init__(self, config: HelmConfig):
        super().__init__(config)
        dim, std = config.hidden_size, config.initializer_range
        self.manifold = geometry(config.geometry, dim, config.curvature)
        # on the sphere a row is any vector in the direction of its point
        table = Euclidean() if isinstance(self.manifold, Sphere) else self.manifold
        self.embed_tokens = Embedding(config.vocab_size, dim, table, std=std)
        self.embed_positions = (
            Embedding(config.max_position_embeddings, dim, table, std=std) if config.position == "learned" else None
        )
        self.layers = nn.ModuleList(HelmBlock(config, i) for i in range(config.num_hidden_layers))
        self.output_residual = SlotResidual(dim, self.manifold, config.residual)
        self.norm = SlotNorm(dim, self.manifold, config.rms_norm_eps)
        self.gradient_checkpointing = False
        names = {part for name, _ in (*self.named_parameters(), *self.named_buffers()) for part in name.split(".")}
        self._keep_in_fp32_modules_strict = STEERING & names
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Mask = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **options: Any,
    ) -> HelmOutput:
        """attention_mask: (B, S) padding, or a ready mask such as `nn.document_mask` makes.

        Further options go to the engine of attention, where a configuration names one.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        use_cache = self.config.use_cache and not self.training if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        self._follow_steps()
        engine = engine_for(self.config, output_attentions, options)
        ready = engine is None and attention_mask is None and position_ids is None and past_key_values is None
        seen = past_key_values.get_seq_length() if past_key_values is not None else 0
        self._require_positions(x.shape[1], seen, attention_mask)
        if position_ids is None:
            position_ids = (torch.arange(x.shape[1], device=x.device) + seen).unsqueeze(0)
        mask = None if ready else create_causal_mask(self.config, x, attention_mask, past_key_values, position_ids)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))  # the stream: autocast itself would leave it in fp32

        x, angles = self._positions(x, position_ids)
        x = self.manifold.slots.point(x)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        y: Any = None
        balance: Any = None
        states = []
        for block in self.layers:
            if output_hidden_states:
                states.append(x if y is None else block.input_residual(x, y))  # type: ignore[operator]
            x, y, loss = block(x, y, angles, mask, past_key_values=past_key_values, engine=engine)
            balance = loss if balance is None else balance if loss is None else balance + loss
        x, _ = residual_norm(x, y, self.output_residual, self.norm)
        return HelmOutput(
            last_hidden_state=x,
            past_key_values=past_key_values if use_cache else None,
            hidden_states=(*states, x) if output_hidden_states else None,
            attentions=None if engine is None or engine.weights is None else tuple(engine.weights),
            balance=balance,
        )

    def _require_positions(self, new: int, seen: int | Tensor, mask: Mask) -> None:
        """Complain where a table of positions ends. By shapes alone: to look at positions would wait for the device.

        A static cache has its length there. Then the mask says it, which has a place for each token.
        """
        told = mask.shape[1] if isinstance(mask, Tensor) and mask.dim() == 2 else 0
        length, most = max(new + (seen if isinstance(seen, int) else 0), told), self.config.max_position_embeddings
        if self.embed_positions is not None and length > most:
            raise UserError(f"{length} tokens: this model learned {most} positions")

    def _require_position(self, largest: int) -> None:
        if largest >= self.config.max_position_embeddings:
            raise UserError(f"position {largest}: this model learned {self.config.max_position_embeddings} positions")

    def _positions(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Angles | None]:
        config = self.config
        if self.embed_positions is not None:
            if position_ids.device.type == "cpu" and not torch.compiler.is_compiling():
                self._require_position(int(position_ids.max()))
            return x + self.embed_positions(position_ids).to(x.dtype), None
        dtype = torch.promote_types(x.dtype, torch.float32)
        if config.qk_rope_head_dim is not None:
            return x, rotary_angles(position_ids, config.qk_rope_head_dim, config.rope_theta, dtype=dtype)
        still = self.manifold.slots.by(config.score).times
        return x, rotary_angles(position_ids, config.head_dim, config.rope_theta, still, dtype)


class HelmForCausalLM(HelmPreTrainedModel, GenerationMixin):
    """Next-token prediction. In training with labels no logits are returned: those of a large vocabulary never exist.

    >>> model = HelmForCausalLM(helm_config("helm-d-tiny", vocab_size=100, num_hidden_layers=1)).eval()
    >>> model(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 100])
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: HelmConfig):
        super().__init__(config)
        self.model = HelmModel(config)
        form: Any = config.head
        manifold, lengths = self.model.manifold, config.unit_weights
        self.lm_head = TokenHead(config.hidden_size, config.vocab_size, manifold, form, lengths)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Mask = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast:
        """labels: (B, T), the inputs again, -100 where nothing is asked. Or the next tokens, as `shift_labels`.

        num_items_in_batch: how many labels all parts of a step have. The loss is then this part's share of their mean.
        """
        self._follow_steps()
        asked, options["return_dict"] = next_labels(labels, options), True
        out = self.model(input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, **options)
        x, loss, logits = out.last_hidden_state, None, None
        if asked is not None:
            loss = self._loss(x, asked, out.balance, num_items_in_batch)
        if asked is None or not self.training:
            keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) and logits_to_keep else slice(None)
            logits = self.lm_head(x[:, logits_to_keep if isinstance(logits_to_keep, Tensor) else keep])
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=out.past_key_values,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )

    def _loss(self, x: Tensor, labels: Tensor, balance: Tensor | None, items: Tensor | int | None) -> Tensor:
        """Of the tokens and, in training, of the routers; of a part of a step, its share of both."""
        if type(self.lm_head) is TokenHead:
            loss = self.lm_head(x, labels, items)
        else:
            loss = token_loss(self.lm_head, x, labels, self.config.vocab_size, items)
        if balance is None or not self.training:
            return loss
        share = 1.0 if items is None else (labels != -100).sum() / items
        return loss + self.config.balance_loss * share * balance

    def _get_resized_lm_head(self, old_lm_head: Any, *args: Any, **kwargs: Any) -> Any:
        """transformers puts an nn.Linear in the head's place. Ours stays, with its rows."""
        new = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        if not isinstance(old_lm_head, TokenHead):
            return new
        old_lm_head.weight, old_lm_head.out_features = new.weight, new.out_features
        if old_lm_head.lengths is not None:
            known = old_lm_head.lengths.detach()[: new.out_features]
            old_lm_head.lengths = nn.Parameter(torch.cat((known, known.new_ones(new.out_features - len(known)))))
        return old_lm_head

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        return [*self.model.layers, self.lm_head]

    def after_step(self) -> None:
        """Routers' biases towards balance, unit rows to length 1: to be called after each step of the optimizer."""
        if self.config.unit_weights:
            self.unit_rows()
        for module in self.modules():
            if isinstance(module, Router):
                module.rebalance(self.config.balance_speed)


register(HelmConfig, HelmForCausalLM, HelmModel)


def helm_config(name: str, **changes: Any) -> HelmConfig:
    """A named configuration ("helm-mice-120m", "llama-tiny", …), with changes.

    >>> config = helm_config("llama-tiny", num_hidden_layers=2)  # the twin of helm-d-tiny
    >>> config.geometry, config.hidden_size, config.num_hidden_layers
    ('euclidean', 128, 2)
    """
    if name not in HELM and name not in TWINS:
        raise UserError(f'no model called "{name}": choose {", ".join([*HELM, *TWINS])}')
    curved, twin = TWINS.get(name, (name, {}))
    return HelmConfig(**{**HELM[curved], **twin, **changes})
