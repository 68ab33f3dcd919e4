"""Every continuation has its own likelihood whatever shares its batch, and accuracies follow from likelihoods."""

import gzip
import json
import math
import random
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.evaluate import TASKS, Item, TaskResult, evaluate_task, read_task, score
from tests.evaluate.tiny import llama, phrase, tokenizer

REAL = Path(__file__).parents[3] / "shared" / "data" / "eval"


def random_items(count, seed=0, longest=12):
    rng = random.Random(seed)
    items = []
    for _ in range(count):
        choices = tuple(phrase(rng, 5) for _ in range(rng.randint(2, 4)))
        items.append(
            Item(
                rng.choice(["", "Question: " + phrase(rng, longest)]),
                choices,
                rng.randrange(len(choices)),
                rng.choice("ab"),
            )
        )
    return items


def likelihood_alone(model, context, continuation):
    """The slow way: one sequence, one forward pass."""
    t = tokenizer()
    before = [t.bos_token_id, *t(context)["input_ids"]]
    after = t(context + continuation)["input_ids"][len(before) - 1 :]
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([before + after])).logits[0].double()
    return sum(logits[len(before) - 1 + i].log_softmax(-1)[token].item() for i, token in enumerate(after))


def watch(model):
    """What the model is called with from now on."""
    seen = []
    model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    return seen


# -- likelihoods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_tokens", [1, 100, 16384])
def test_likelihoods_do_not_depend_on_the_batch(batch_tokens):
    model, items = llama(), random_items(12)
    scored = score(model, tokenizer(), items, batch_tokens=batch_tokens)
    expected = tuple(tuple(likelihood_alone(model, *request) for request in item.requests()) for item in items)
    assert_close(scored.log_likelihoods, expected, atol=1e-4, rtol=1e-5)


def test_single_tokens_after_one_context_share_a_row():
    model = llama()
    seen = watch(model)
    scored = score(model, tokenizer(), [Item("why is the sky", tuple("ABCD"), 0), Item("the cat", tuple("AB"), 0)])
    assert [len(call["input_ids"]) for call in seen] == [2]
    assert scored.log_likelihoods[0][2] == pytest.approx(likelihood_alone(model, "why is the sky", " C"), abs=1e-4)


def test_padding_is_masked():
    model = llama()
    seen = watch(model)
    score(model, tokenizer(), [Item("", ("mat mat mat mat", "mat"), 0)])
    long, short = (
        len(tokenizer()(text)["input_ids"]) for text in ("mat mat mat mat", "mat")
    )  # the first token more, the last one less
    assert seen[0]["attention_mask"].tolist() == [[1] * long, [1] * short + [0] * (long - short)]


def test_likelihoods_obey_the_chain_rule():
    items = [
        Item("", ("the cats chase mice", "mat"), 0),
        Item("", ("the cats", "mat"), 0),
        Item("the cats", ("chase mice", "mat"), 0),
    ]
    both, first, second = score(llama(), tokenizer(), items).log_likelihoods
    assert both[0] == pytest.approx(first[0] + second[0], abs=1e-4)


def test_spaces_at_the_end_of_a_context_belong_to_the_continuation():
    model = llama()
    spaced, plain = score(
        model, tokenizer(), [Item("the cat ", ("sat", "mat"), 0), Item("the cat", (" sat", " mat"), 0)]
    ).log_likelihoods
    assert spaced == plain


def test_long_contexts_keep_their_end_and_the_first_token():
    """What is cut has no influence; what is left is read behind the token that starts a document."""
    model = llama(positions=16)
    end = " dogs chase cats"
    far, near = (
        score(model, tokenizer(), [Item(start + end * 8, ("mice", "sky blue"), 0)]) for start in ("why why why", "mat")
    )
    assert far.log_likelihoods == near.log_likelihoods
    assert (far.cut, near.cut) == (1, 1)
    seen = watch(model)
    score(model, tokenizer(), [Item(end * 8, ("mice", "sky blue"), 0)])
    assert seen[0]["input_ids"].shape[1] == 16
    assert set(seen[0]["input_ids"][:, 0].tolist()) == {tokenizer().bos_token_id}


def test_what_fits_is_not_cut():
    assert score(llama(), tokenizer(), random_items(5)).cut == 0


@pytest.mark.parametrize("too_long", [-1, 0, 1, 2])
def test_a_context_is_cut_from_the_first_token_that_does_not_fit(too_long):
    """The model reads the first token, the context, and all of the choice but its last token."""
    context, choices = "the sky is blue and the cat sat on the mat", ("dogs chase", "light")
    whole = [tokenizer()(f"{context} {choice}", add_special_tokens=False)["input_ids"] for choice in choices]
    model = llama(positions=max(map(len, whole)) - too_long)
    assert score(model, tokenizer(), [Item(context, choices, gold=0)]).cut == (too_long > 0)


def test_contexts_of_their_own():
    model = llama()
    scored = score(model, tokenizer(), [Item(("the dogs", "the cats"), ("chase mice",) * 2, 0)])
    assert_close(
        scored.log_likelihoods[0],
        tuple(likelihood_alone(model, c, " chase mice") for c in ("the dogs", "the cats")),
        atol=1e-4,
        rtol=1e-5,
    )


def test_it_repeats_itself():
    model, items = llama(), random_items(10)
    assert score(model, tokenizer(), items) == score(model, tokenizer(), items)


def test_progress_counts_choices():
    seen, items = [], random_items(6)
    score(llama(), tokenizer(), items, batch_tokens=64, progress=lambda done, note: seen.append(done))
    assert seen == sorted(set(seen))
    assert seen[-1] == sum(len(item.choices) for item in items)


# -- accuracies -------------------------------------------------------------------------------------------------------


def test_accuracies_follow_from_likelihoods():
    items = random_items(40)
    scored = score(llama(), tokenizer(), items)
    right = [
        max(range(len(v)), key=v.__getitem__) == item.gold
        for v, item in zip(scored.log_likelihoods, items, strict=True)
    ]
    norm = [
        max(range(len(v)), key=lambda i, v=v, item=item: v[i] / len(item.choices[i])) == item.gold
        for v, item in zip(scored.log_likelihoods, items, strict=True)
    ]
    assert scored.acc.value == pytest.approx(sum(right) / 40)
    assert scored.acc_norm.value == pytest.approx(sum(norm) / 40)
    assert scored.acc.stderr == pytest.approx(math.sqrt(scored.acc.value * (1 - scored.acc.value) / 40))
    assert scored.chance == pytest.approx(sum(1 / len(item.choices) for item in items) / 40)
    sizes = {name: sum(item.group == name for item in items) for name in scored.groups}
    assert set(sizes) == {"a", "b"}
    assert sum(scored.groups[name].value * size for name, size in sizes.items()) == pytest.approx(sum(right))


def test_lengths_are_characters():
    """By bytes the two would be about even: each byte of both is a token of its own."""
    items = [Item(phrase(random.Random(seed), 4), ("猫猫", "zqxj"), 1) for seed in range(10)]
    assert score(llama(), tokenizer(), items).acc_norm.value == 1


def test_a_model_that_finds_all_alike_scores_chance_wherever_gold_is():
    model = llama()
    torch.nn.init.zeros_(model.lm_head.weight)
    for gold in range(3):
        scored = score(model, tokenizer(), [Item("the sky", ("A", "B", "C"), gold), Item("", ("A", "A"), gold % 2)])
        assert scored.acc.value == scored.acc_norm.value == pytest.approx(scored.chance)


def test_the_right_answer_is_found_by_a_model_that_learned_it():
    model, t = llama(), tokenizer()
    items = [
        Item("the cats chase", ("mice", "dogs"), 0),
        Item("the dogs chase", ("mice", "cats"), 1),
        Item("why is the sky", ("mat", "blue"), 1),
    ]
    batch = t(
        [t.bos_token + item.context + " " + item.choices[item.gold] for item in items],
        return_tensors="pt",
        padding=True,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        loss = model(**batch, labels=batch["input_ids"]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scored = score(model, t, items)
    assert scored.acc.value == scored.acc_norm.value == 1
    assert scored.acc.stderr == 0


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_mistakes_are_said_in_one_line():
    with pytest.raises(UserError, match="no items"):
        score(llama(), tokenizer(), [])
    with pytest.raises(UserError, match="too long for a model that reads 8"):
        score(llama(positions=8), tokenizer(), [Item("", ("the cat sat on the mat " * 3, "no"), 0)])
    broken = llama()
    torch.nn.init.constant_(broken.lm_head.weight, math.nan)
    with pytest.raises(UserError, match="NaN"):
        score(broken, tokenizer(), random_items(1))


def test_a_tokenizer_without_a_first_token_is_refused():
    import copy

    bare = copy.deepcopy(tokenizer())
    bare.bos_token = bare.eos_token = None
    with pytest.raises(UserError, match="neither a bos nor an eos"):
        score(llama(), bare, random_items(1))


GOOD = {"query": "why", "choices": ["a", "b"], "gold": 1}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "Expecting"),
        ("[1]", "object"),
        (json.dumps(GOOD | {"query": " "}), "query"),
        (json.dumps(GOOD | {"choices": "ab"}), "choices"),
        (json.dumps(GOOD | {"choices": ["a", ""]}), "choices"),
        (json.dumps(GOOD | {"choices": ["a"], "gold": 0}), "1 choices"),
        (json.dumps(GOOD | {"gold": 2}), "0 to 1"),
        (json.dumps(GOOD | {"gold": -1}), "0 to 1"),
        (json.dumps(GOOD | {"gold": True}), "0 to 1"),
        (json.dumps(GOOD | {"gold": "1"}), "0 to 1"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, complaint):
    file = tmp_path / "arc_easy.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{line}\n")
    with pytest.raises(UserError, match=f"arc_easy.jsonl line 3: .*{complaint}"):
        read_task("arc_easy", tmp_path)


@pytest.mark.parametrize("query", ["no blank here.", "a blank at the end _"])
def test_winogrande_needs_its_blank(tmp_path, query):
    (tmp_path / "winogrande.jsonl").write_text(json.dumps(GOOD | {"query": query}))
    with pytest.raises(UserError, match=r"line 1: .*blank"):
        read_task("winogrande", tmp_path)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no task winograd: .*winogrande"):
        read_task("winograd", tmp_path)
    with pytest.raises(UserError, match=r"holds no file for hellaswag: .*hellaswag\.jsonl.*hellaswag_1k\.jsonl\.gz"):
        read_task("hellaswag", tmp_path)
    with pytest.raises(UserError, match="no such file"):
        read_task("copa", tmp_path / "absent.jsonl")
    with pytest.raises(UserError, match="limit of 0"):
        read_task("copa", tmp_path, limit=0)
    for content, complaint in ((b"\n", "no items"), (b"\xff\xfe", "UTF-8")):
        (tmp_path / "copa.jsonl").write_bytes(content)
        with pytest.raises(UserError, match=complaint):
            read_task("copa", tmp_path)
    for content in (b"no gzip", gzip.compress(json.dumps(GOOD).encode())[:-9]):
        (tmp_path / "piqa.jsonl.gz").write_bytes(content)
        with pytest.raises(UserError, match="broken gzip"):
            read_task("piqa", tmp_path)


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_a_limit_takes_items_from_everywhere(tmp_path):
    (tmp_path / "openbookqa.jsonl").write_text("\n".join(json.dumps(GOOD | {"query": str(i)}) for i in range(10)))
    assert [item.context for item in read_task("openbookqa", tmp_path, limit=4)] == ["0", "2", "5", "7"]
    assert len(read_task("openbookqa", tmp_path, limit=99)) == len(read_task("openbookqa", tmp_path)) == 10


def test_the_whole_way_from_a_file(tmp_path):
    pairs = [
        {"good": "the cat sat", "bad": "cat the sat", "field": "syntax", "phenomenon": p, "uid": "u"} for p in "xxy"
    ]
    with gzip.open(tmp_path / "blimp.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, pairs)))
    result = evaluate_task("blimp", tmp_path, llama(), tokenizer())
    assert len(result.score) == 3
    assert set(result.score.groups) == {"x", "y"}
    assert len(result.row()) == len(TaskResult.heads)
    assert result.row()[:2] == ["blimp", "3"]


@pytest.mark.skipif(not REAL.is_dir(), reason="no shared/data/eval beside the checkout")
@pytest.mark.parametrize("name", TASKS)
def test_real_files_are_read(name):
    items = read_task(name, REAL, limit=20)
    scored = score(llama(positions=512), tokenizer(), items[::5])
    assert all(math.isfinite(value) for values in scored.log_likelihoods for value in values)


# -- prompts are those of lm-eval -------------------------------------------------------------------------------------

QUESTION = "Why do {{cats}} chase mice?"
PLAIN = ["for fun", "{0} hunger", "habit", "no reason", "who knows"]
THEIR_DOCUMENTS = {
    "arc/arc_easy.yaml": ("arc_easy", QUESTION, {"question": QUESTION}),
    "openbookqa/openbookqa.yaml": ("openbookqa", QUESTION, {"question_stem": QUESTION}),
    "commonsense_qa/default.yaml": (
        "commonsense_qa",
        QUESTION + " ",
        {"question": QUESTION + " ", "choices": {"text": PLAIN}},
    ),
    "piqa/piqa.yaml": ("piqa", "Goal: " + QUESTION, {"goal": QUESTION}),
    "siqa/siqa.yaml": ("siqa", f"Cats chase. {QUESTION}", {"context": "Cats chase.", "question": QUESTION}),
    "super_glue/boolq/default.yaml": (
        "boolq",
        "Passage: Cats.\nQuestion: do they?",
        {"passage": "Cats.", "question": "do they"},
    ),
}


@pytest.mark.parametrize("file", THEIR_DOCUMENTS)
def test_prompts_are_those_of_lm_eval(tmp_path, file):
    lm_eval = pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    yaml = pytest.importorskip("yaml")
    from lm_eval.utils import apply_template

    name, query, document = THEIR_DOCUMENTS[file]
    template = yaml.safe_load((Path(lm_eval.__file__).parent / "tasks" / file).read_text())["doc_to_text"]
    (tmp_path / f"{name}.jsonl").write_text(json.dumps({"query": query, "choices": PLAIN, "gold": 1}))
    assert read_task(name, tmp_path)[0].context == (document.get(template) or apply_template(template, document))


def test_mmlu_is_that_of_lm_eval(tmp_path):
    lm_eval = pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    yaml = pytest.importorskip("yaml")
    from lm_eval.utils import apply_template

    folder = Path(lm_eval.__file__).parent / "tasks" / "mmlu" / "default"
    template = yaml.safe_load((folder / "_default_template_yaml").read_text())["doc_to_text"]
    about = yaml.safe_load((folder / "mmlu_college_biology.yaml").read_text())["description"]
    row = {"subject": "college_biology", "query": QUESTION + "\n", "choices": PLAIN[:4], "gold": 3}
    (tmp_path / "mmlu_test.jsonl").write_text(json.dumps(row))
    (item,) = read_task("mmlu", tmp_path)
    assert item.context == about + apply_template(template, {"question": row["query"], "choices": row["choices"]})
    assert (item.choices, item.gold, item.group) == (("A", "B", "C", "D"), 3, "college_biology")


def test_winogrande_scores_the_rest_of_the_sentence(tmp_path):
    row = {"query": "Sarah taught Maria because _ knew less.", "choices": ["Sarah", "Maria"], "gold": 1}
    (tmp_path / "winogrande.jsonl").write_text(json.dumps(row))
    (item,) = read_task("winogrande", tmp_path)
    start = "Sarah taught Maria because "
    assert item.requests() == [(start + "Sarah", " knew less."), (start + "Maria", " knew less.")]
