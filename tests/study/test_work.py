"""Operations of a step: as many as its matrices say."""

import pytest

from horosphere.study.work import gflop
from horosphere.train.recipe import Recipe
from tests.tasks.tiny import LANGUAGE, PICTURES, write_data


def counted(recipe, *words):
    made = Recipe.read(recipe, words)
    data = made.task.open_data()
    engine = made.engine.for_data(made.task.rows(data), made.engine.batch)
    return gflop(made, data, engine, "cpu"), made.task, data


@pytest.mark.parametrize("model", ["helm-d-tiny", "llama-tiny"])
def test_a_dense_model_is_six_operations_a_weight_and_token_and_its_attention(model, tmp_path):
    pytest.importorskip("transformers")
    found, task, data = counted(model, f"data={write_data('language', tmp_path)}", *LANGUAGE)
    network = task.network_for(data.tokenizer)
    weights = sum(p.numel() for name, p in network.named_parameters() if p.ndim == 2 and "embed_tokens" not in name)
    times = sum(layer.weight.shape[0] for layer in network.modules() if hasattr(layer, "time_weight"))
    tokens, layers = 4 * 16, 2
    attention = layers * 4 * 16 * 16 * 32 * 2 * (2 + 5)  # two products forward, five back
    assert found * 1e9 == pytest.approx(6 * (weights + times) * tokens + attention, rel=0.02)


def test_a_mixture_counts_the_experts_that_a_token_sees(tmp_path):
    pytest.importorskip("transformers")
    words = (f"data={write_data('language', tmp_path)}", *LANGUAGE)
    one, two = (counted("helm-mice-tiny", *words, f"num_experts_per_tok={k}")[0] for k in (1, 2))
    expert = 6 * 3 * 32 * 16 * 4 * 16 / 1e9  # three matrices, for each token
    assert two - one == pytest.approx(expert, rel=0.01)


def test_a_step_of_more_rows_is_more_work(tmp_path):
    words = (f"data={write_data('pictures', tmp_path)}", *PICTURES)
    few, many = (counted("hcformer-nano-32", *words, f"batch={rows}")[0] for rows in (4, 8))
    assert many == pytest.approx(2 * few)
    assert few > 0
