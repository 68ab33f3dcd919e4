"""Instruments that run a model: they find what the model's own arithmetic says, and leave the model as it was."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

pytest.importorskip("transformers", reason="language models need transformers")

from horosphere.data.tokens import TokenFile
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz
from horosphere.measure import language
from horosphere.measure.language import (
    first_rows,
    flat_noise,
    inspect,
    ricci_beside_noise,
    study,
    token_counts,
    token_labels,
    token_points,
    word_examples,
)
from horosphere.measure.tokens import token_radius
from horosphere.models.helm import HelmConfig, HelmForCausalLM
from horosphere.nn import Router, rotary_angles, rotate
from tests.evaluate.tiny import tokenizer

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
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
FLAT = {"geometry": "euclidean"}
FORMS = [DENSE, {**DENSE, **FLAT}, MICE, {**MICE, **FLAT}]
NAMES = ["dense", "dense twin", "mice", "mice twin"]


def model(shake=0.3, **config):
    """`shake` moves every parameter, so that nothing is still at its zero or its one."""
    torch.manual_seed(0)
    made = HelmForCausalLM(HelmConfig(**config)).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(shake * torch.randn_like(p))
    return made


def tokens(rows=5, length=20):
    return torch.randint(1, 97, (rows, length), generator=torch.Generator().manual_seed(1))


# -- attention --------------------------------------------------------------------------------------------------------


def test_the_weights_are_those_of_torchs_attention():
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    mine = language._causal_weights(q, k, 0.7) @ v
    assert_close(mine, F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7))


@pytest.mark.parametrize(
    "form", [DENSE, {**DENSE, "curvature": 0.5}, {**DENSE, **FLAT}], ids=["lorentz", "c = 0.5", "flat"]
)
def test_heads_attend_by_distance(form):
    """softmax(-d_L²/τ) on the hyperboloid and softmax(q·k/√n) in flat space, from the first layer's projections."""
    m, x, n = model(**form), tokens(), 8
    attention, manifold = m.model.layers[0].self_attn, m.model.manifold
    made = []
    handles = [
        p.register_forward_hook(lambda *given: made.append(given[2])) for p in (attention.q_proj, attention.k_proj)
    ]
    distances = inspect(m, x).attention_distance[0]
    for handle in handles:
        handle.remove()
    angles = rotary_angles(torch.arange(20)[None], n, still=manifold.slots.times)
    q, k = (rotate(u.unflatten(-1, (4, n)), angles).transpose(1, 2) for u in made)
    if manifold.flat:
        scores = q @ k.mT / n**0.5
    else:
        q, k = q[..., 1:], k[..., 1:]
        time = lambda u: (1 / manifold.c + u.square().sum(-1)).sqrt()  # noqa: E731
        inner = q @ k.mT - time(q).unsqueeze(-1) * time(k).unsqueeze(-2)
        scores = -(-2 / manifold.c - 2 * inner) / (n**0.5 * attention.temperature.log.exp())
    weights = scores.masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf).softmax(-1)
    place = torch.arange(20.0)
    assert_close(distances, (weights * (place[:, None] - place)).sum(-1).mean((0, 2)), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_heads_that_see_no_difference_look_at_everything(form):
    m = model(**form)
    with torch.no_grad():
        for block in m.model.layers:
            for name, p in block.self_attn.named_parameters():
                if "proj" in name and p.dim() == 2:
                    p.zero_()
    stats = inspect(m, tokens())
    assert_close(stats.attention_distance, torch.full((2, 4), (20 - 1) / 4))
    assert stats.length == 20


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_reading_in_parts_changes_nothing(form, monkeypatch):
    m, seen = model(**form), []
    whole = inspect(m, tokens())
    monkeypatch.setattr(language, "ENTRIES", 2 * 4 * 20 * 20)
    parts = inspect(m, tokens(), progress=lambda done, note: seen.append(done))
    assert seen == [2, 4, 5]
    assert_close(parts.attention_distance, whole.attention_distance, atol=1e-3, rtol=1e-4)
    if whole.expert_load is not None:
        assert_close(parts.expert_load.shares, whole.expert_load.shares)


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_the_model_is_left_as_it_was(form):
    m = model(**form).train()
    m.lm_head.eval()
    before = {name: t.clone() for name, t in m.state_dict().items()}
    inspect(m, tokens())
    assert m.training
    assert m.model.layers[0].training
    assert not m.lm_head.training
    for name, t in m.state_dict().items():
        assert torch.equal(t, before[name]), name
    assert not any(module._forward_hooks for module in m.modules())


@pytest.mark.parametrize("shape", [(20,), (2, 1), (0, 20)])
def test_rows_that_cannot_be_read(shape):
    with pytest.raises(UserError, match=r"rows of tokens \(B, T\)"):
        inspect(model(**DENSE), torch.ones(shape, dtype=torch.long))


# -- experts and scalars ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [MICE, {**MICE, **FLAT}], ids=["mice", "twin"])
def test_load_counts_what_the_routers_decide(form):
    m = model(**form, first_k_dense_replace=0)
    for router in (module for module in m.modules() if isinstance(module, Router)):
        router.e_score_correction_bias[:] = torch.tensor([9.0, 0, 0, 9, 0])
    stats = inspect(m, tokens())
    assert stats.expert_layers == [0, 1]
    assert_close(stats.expert_load.shares, torch.tensor([[0.5, 0, 0, 0.5, 0]] * 2).double())
    assert stats.expert_load.dead.tolist() == [3, 3]


def test_curvatures_from_start_to_learned():
    m = model(shake=0.0, **MICE)
    before = inspect(m, tokens()).curvatures
    assert [(layer.layer, layer.routed) for layer in before] == [(1, 5)]
    assert_close(before[0].start[:5], torch.logspace(np.log10(0.1), np.log10(2.0), 5))
    assert_close(before[0].learned, before[0].start)
    mixture = m.model.layers[1].mlp
    torch.nn.init.constant_(mixture.experts.log_ratio, 0.3)
    after = inspect(m, tokens()).curvatures[0]
    assert_close(after.start, before[0].start)
    assert_close(after.learned, torch.cat([mixture.experts.c, mixture.shared_experts.c]).detach())
    assert (after.learned[:5] > 1.3 * after.start[:5]).all()
    assert torch.equal(after.learned[5:], before[0].learned[5:])


@pytest.mark.parametrize(
    "form", [DENSE, {**MICE, **FLAT}, {**MICE, "expert_curvature": "constant"}], ids=["dense", "twin", "constant"]
)
def test_no_curvature_where_none_is_learned(form):
    assert inspect(model(**form), tokens()).curvatures == []


def test_scalars_of_layers():
    m = model(shake=0.0, **DENSE)
    with torch.no_grad():
        m.model.layers[1].self_attn.temperature.log.fill_(0.5)
        m.model.layers[1].input_residual.weight.fill_(3)  # joins what layer 0 made
    stats = inspect(m, tokens())
    assert_close(stats.temperature, torch.tensor([1, 0.5 * np.e**0.5 * 2]).float())
    assert_close(stats.residual, torch.tensor([[1.0, 3], [1, 1]]))
    flat = inspect(model(**DENSE, **FLAT), tokens())
    assert flat.temperature is None
    assert flat.residual is None
    assert flat.expert_load is None
    assert inspect(model(**DENSE, residual="additive"), tokens()).residual is None
    m = model(**DENSE, geometry="sphere", residual="interpolate")
    sphere = inspect(m, tokens())
    assert sphere.starts == (pytest.approx(2), 0.05)
    assert_close(sphere.residual[0, 0], m.model.layers[0].attention_residual.weight.mean().detach())  # over slots
    assert sphere.residual.shape == (len(sphere.temperature), 2)


# -- the table --------------------------------------------------------------------------------------------------------


def test_the_slot_of_the_time_is_no_part_of_a_point():
    m = model(**DENSE)
    points, manifold = token_points(m)
    with torch.no_grad():
        m.model.embed_tokens.weight[:, 0] += 7
    again, _ = token_points(m)
    assert torch.equal(points, again)
    assert_close(manifold.dist0(points), Lorentz().dist0(m.model.embed_tokens.weight[:, 1:]))
    flat = model(**DENSE, **FLAT)
    assert torch.equal(token_points(flat)[0], flat.model.embed_tokens.weight)


def stream(ids, vocab_size=300):
    return TokenFile(np.array(ids, np.uint16), 0, vocab_size, len(ids), 1)


@pytest.mark.parametrize("chunk", [3, 1000])
def test_counts(chunk, monkeypatch):
    monkeypatch.setattr(language, "CHUNK", chunk)
    assert token_counts(stream([0, 5, 5, 2, 5, 0, 1]), 8).tolist() == [2, 1, 1, 0, 0, 3, 0, 0]
    with pytest.raises(UserError, match="holds token 5, and the model knows 5"):
        token_counts(stream([0, 5]), 5)


def test_rows_to_read_are_whole():
    ids = list(range(1, 12))
    assert first_rows(stream(ids), 4).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert first_rows(stream(ids), 100).tolist() == [ids[:-1]]


def test_labels_are_one_line_each_and_show_spaces():
    labels = token_labels(tokenizer(), 320)
    ids = tokenizer()(" the\n")["input_ids"]
    assert "".join(labels[i] for i in ids) == "␣the\\n"
    assert len(labels) == 320
    assert labels[len(tokenizer()) :] == [""] * (320 - len(tokenizer()))
    assert all(label.isprintable() for label in labels)


def test_examples_are_words_seen_often():
    labels = ["␣the", "the", "␣a", "␣cat", "␣1st", "␣zebra", "␣rare", "."]
    radius = torch.tensor([1.0, 0.1, 0.2, 2, 0.3, 3, 9, 8])
    radii = token_radius(radius[:, None], Euclidean(), np.array([50, 99, 99, 20, 30, 10, 9, 99]))
    assert word_examples(radii, labels, 2) == ([0, 3], [5, 3])
    assert word_examples(radii, labels, 9, seen=1) == ([0, 3, 5, 6], [6, 5, 3, 0])


@pytest.mark.parametrize("manifold", [Euclidean(), Lorentz(c=0.5)])
def test_noise_is_as_wide_in_every_principal_direction(manifold):
    points = manifold.lift(
        torch.randn(4000, 5, generator=torch.Generator().manual_seed(0)).double() * torch.tensor([3, 1, 1, 0.5, 0.1])
        + 2
    )
    noise = flat_noise(points, manifold)
    assert noise.shape == (4000, 5)
    assert torch.equal(noise, flat_noise(points, manifold))
    assert not torch.equal(noise, flat_noise(points, manifold, seed=1))
    wide = torch.linalg.svdvals(manifold.lower(points) - manifold.lower(points).mean(0))
    assert_close(torch.linalg.svdvals(noise), wide, rtol=0.06, atol=0)


def test_noise_beside_noise_is_alike_and_clusters_stand_out():
    options = {"neighbours": 6, "edges": 60}
    gaussian = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    ricci, noise = ricci_beside_noise(gaussian, Euclidean(), **options)
    assert abs(ricci.mean - noise.mean) < 0.08
    clusters = torch.randn(30, 1, 6, generator=torch.Generator().manual_seed(0)) + 0.01 * torch.randn(30, 10, 6)
    ricci, noise = ricci_beside_noise(clusters.flatten(0, 1), Euclidean(), **options)
    assert ricci.mean > noise.mean + 0.3


# -- all together -----------------------------------------------------------------------------------------------------


def test_a_study_of_two_models():
    labels = [f"␣{chr(97 + i // 10)}{chr(97 + i % 10)}" for i in range(97)]
    counts = np.arange(97)
    models, seen = {"helm": model(**MICE), "twin": model(**MICE, **FLAT)}, []
    result = study(models, labels, counts, tokens(), edges=20, progress=lambda done, note: seen.append((done, note)))
    assert result.name == "helm"
    assert list(result.radius) == list(result.stats) == ["helm", "twin"]
    assert seen == [(5, "helm, reading"), (10, "twin, reading")]
    rows = dict(result.rows())
    assert rows["tokens"] == "96 of 97 occur in the text"
    assert rows["radius with frequency"].startswith(f"{result.radius['helm'].correlation:+.2f} ")
    assert rows["  the same of twin"] == f"{result.radius['twin'].correlation:+.2f}"
    assert f"{result.ricci.mean:+.3f}" in rows["Ricci curvature"]
    assert f"{result.noise.mean:+.3f}" in rows["Ricci curvature"]
    assert rows["layer 1 curvatures"].count("→") == 7
    assert rows["layer 1 expert load"].count("%") == 5
    near, far = word_examples(result.radius["helm"], labels, 8)
    assert rows["nearest words"].split(", ") == [labels[i] for i in near]
    assert rows["farthest words"].split(", ") == [labels[i] for i in far]
