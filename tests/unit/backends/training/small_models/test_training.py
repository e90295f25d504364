"""Training of the small models: tokenizer, batches, objective, resuming and checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.training.rows.batches import IGNORED, Batch, Example, collate, examples, row_pool
from backends.training.rows.tokenizer import (
    ASSISTANT,
    BEGIN,
    END,
    SPECIALS,
    USER,
    load_tokenizer,
    train_tokenizer,
    write_tokenizer,
)
from backends.training.small_models import checkpoint, demo, draft, objective, optimizers, run
from backends.training.small_models.llama import Llama, LlamaShape, causal_attention
from backends.training.small_models.recipe import Recipe
from harness.core.errors import UserError
from workloads import bundled, prompts

TINY = {"layers": 3, "width": 32, "feed_forward": 48, "heads": 2, "kv_heads": 1, "head_dim": 16}
MIX = {"humaneval": 1, "gsm8k": 1}


def recipe(**changes: Any) -> Recipe:
    values: dict[str, Any] = {"steps": 6, "rows": 4, "mix": MIX, "shape": TINY} | changes
    return Recipe(**values)


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(folder, rows_per_workload=60)
    return folder


@pytest.fixture
def out(tokenizer_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tokenizer_folder, tmp_path / "model"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder).state_dict()


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@settings(deadline=None, max_examples=60)
@given(text=st.text())
def test_any_text_survives_the_tokenizer(tokenizer_folder: Path, text: str) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text or any(special in text for special in SPECIALS)


def test_a_kill_while_a_tokenizer_is_written_leaves_none(tmp_path: Path) -> None:
    def killed(path: str) -> None:
        Path(path).write_text('{"model')
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tokenizer(SimpleNamespace(save=killed), tmp_path, {}, 8)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer_config.json"]


def test_digits_are_single_tokens(tokenizer_folder: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    pieces = [tokenizer.decode([i]).strip() for i in range(len(tokenizer))]
    assert [p for p in pieces if len(p) > 1 and any(c.isdigit() for c in p)] == []
    assert len(tokenizer.encode("12345", add_special_tokens=False)) == 5


def test_the_chat_template_frames_the_prompt(tokenizer_folder: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    row = bundled.rows("gsm8k", "test", 1)[0]
    ids = prompts.encode_prompt(tokenizer, "gsm8k", row)
    assert ids[:2] == [BEGIN, USER]
    assert ids[-2:] == [END, ASSISTANT]
    assert tokenizer.decode(ids[2:-2]) == prompts.instruction("gsm8k", row)


def test_collate_marks_answers_and_pads_with_ignored_targets() -> None:
    batch = collate([Example([7, 8], [9, END]), Example([7], [6, 5, 4, END])])
    assert batch.ids.tolist() == [[7, 8, 9, 0], [7, 6, 5, 4]]
    assert batch.targets.tolist() == [[8, 9, END, IGNORED], [6, 5, 4, END]]
    assert batch.answers.tolist() == [[False, True, True, False], [True] * 4]


def test_a_pool_depends_on_its_number_alone_and_keeps_the_mix(tokenizer_folder: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    pool = row_pool(tokenizer, {"humaneval": 1, "gsm8k": 3}, 4, 0, 5)
    assert pool == row_pool(tokenizer, {"humaneval": 1, "gsm8k": 3}, 4, 0, 5)
    assert pool != row_pool(tokenizer, {"humaneval": 1, "gsm8k": 3}, 4, 0, 6)
    assert [len(batch) for batch in pool] == [4] * 16
    code = tokenizer.encode("Complete", add_special_tokens=False)[0]
    assert sum(example.prompt[2] == code for batch in pool for example in batch) == 16
    for batch in pool:
        assert max(e.length for e in batch) - min(e.length for e in batch) < 80


def test_examples_come_from_the_named_split(tokenizer_folder: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_folder)
    (example,) = examples(tokenizer, "gsm8k", 1, 0, "test")
    row = bundled.rows("gsm8k", "test", 1)[0]
    assert tokenizer.decode(example.answer[:-1]) == row["answer"]
    assert example.answer[-1] == END


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_written_out_attention_equals_pytorchs(kv_heads: int) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 4, 7, 8)
    k, v = torch.randn(2, kv_heads, 7, 8), torch.randn(2, kv_heads, 7, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(causal_attention(q, k, v), expected)


def test_the_checkpoint_computes_the_same_in_transformers(out: Path) -> None:
    from transformers import LlamaForCausalLM

    torch.manual_seed(1)
    tokenizer = load_tokenizer(out)
    model = Llama(LlamaShape(len(tokenizer), **TINY))
    checkpoint.export(model, out, out)
    theirs = LlamaForCausalLM.from_pretrained(str(out), dtype=torch.float32)
    ours = checkpoint.load(out)
    ids = torch.randint(5, len(tokenizer), (2, 40))
    with torch.no_grad():
        logits = ours.logits(ours.hidden_states(ids, torch.float32)[-1])
        torch.testing.assert_close(logits, theirs(ids).logits, rtol=1e-4, atol=1e-4)


def test_the_loss_weighs_layers_by_their_index() -> None:
    """Checked against a sum written out per layer and position."""
    torch.manual_seed(0)
    model = Llama(LlamaShape(50, **TINY))
    batch = collate([Example([7, 8, 9], [10, 11, END]), Example([5], [6, END])])
    loss, losses = objective.shard_loss(model, batch, 0.25, torch.float32)
    expected = torch.zeros(())
    states = model.hidden_states(batch.ids, torch.float32)
    for number, state in enumerate(states, start=1):
        for row, time in batch.answers.nonzero().tolist():
            log_p = model.logits(state[row, time]).log_softmax(-1)[batch.targets[row, time]]
            expected = expected - log_p * number / (1 + 2 + 3)
    for row, time in ((0, 0), (0, 1)):
        log_p = model.logits(states[-1][row, time]).log_softmax(-1)[batch.targets[row, time]]
        expected = expected - 0.25 * log_p
    torch.testing.assert_close(loss, expected)
    assert losses.answers == 5


def test_distillation_is_least_for_the_teacher_itself() -> None:
    torch.manual_seed(0)
    teacher, other = Llama(LlamaShape(50, **TINY)), Llama(LlamaShape(50, **TINY))
    batch: Batch = collate([Example([7, 8, 9], [10, 11, END])])
    own, losses = objective.distillation_loss(teacher, teacher, batch, torch.float32)
    foreign, _ = objective.distillation_loss(other, teacher, batch, torch.float32)
    taught = teacher.logits(teacher.hidden_states(batch.ids, torch.float32)[-1][batch.answers])
    entropy = -(taught.softmax(-1) * taught.log_softmax(-1)).sum()
    torch.testing.assert_close(own, entropy)
    assert foreign > own
    assert losses.answers == 3


def test_the_gradient_of_shards_is_the_mean_over_answer_tokens() -> None:
    torch.manual_seed(0)
    model = Llama(LlamaShape(50, **TINY))
    rows = [Example([7, 8, 9], [10, 11, END]), Example([5], [6, END])]
    parts = [objective.shard_gradients(model, [row], 0.1, torch.float32) for row in rows]
    objective.set_gradients(model, parts)
    loss, losses = objective.shard_loss(model, collate(rows), 0.1, torch.float32)
    whole = torch.autograd.grad(loss / losses.answers, list(model.parameters()))
    for parameter, expected in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)


def test_the_learning_rate_rises_holds_and_falls() -> None:
    factors = [optimizers.learning_rate(s, 1000, decay=0.4) for s in range(1000)]
    assert factors[0] == pytest.approx(1 / 40)
    assert set(factors[40:600]) == {1.0}
    assert factors[800] == pytest.approx(0.51)
    assert 0.02 < factors[-1] < 0.025


def test_a_killed_run_goes_on_to_the_same_weights(
    out: Path, tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in step 5, whose work is lost, with a half-written state beside the good one."""
    straight = Path(shutil.copytree(tokenizer_folder, tmp_path / "straight"))
    assert demo.train_demo(straight, recipe=recipe(), threads=1)

    taken = run.TrainingRun.take_step

    def dying(self: run.TrainingRun, rows: list[Example]) -> objective.Losses:
        losses = taken(self, rows)
        if self.step == 5:
            raise KeyboardInterrupt
        return losses

    monkeypatch.setattr(run.TrainingRun, "take_step", dying)
    monkeypatch.setattr(run, "SAVE_EVERY", 2)
    with pytest.raises(KeyboardInterrupt):
        demo.train_demo(out, recipe=recipe(), threads=1)
    monkeypatch.undo()
    (out / "training.tmp").write_bytes(b"half a state")
    assert demo.train_demo(out, recipe=recipe(), threads=1)
    assert same(weights(out), weights(straight))


def test_processes_give_the_same_weights_as_one_thread(
    out: Path, tokenizer_folder: Path, tmp_path: Path
) -> None:
    alone = Path(shutil.copytree(tokenizer_folder, tmp_path / "alone"))
    assert demo.train_demo(alone, recipe=recipe(steps=3), threads=1)
    assert demo.train_demo(out, recipe=recipe(steps=3), threads=2)
    assert same(weights(out), weights(alone))


def test_training_lowers_the_loss_and_reports_it(out: Path) -> None:
    reports: list[Any] = []
    chosen = recipe(steps=50, rows=4, shards=1, mix={"gsm8k": 1})
    assert demo.train_demo(out, recipe=chosen, threads=1, progress=reports.append)
    assert [r.step for r in reports] == [25, 50]
    assert len(reports[0].layer_losses) == 3
    assert reports[-1].layer_losses[-1] < reports[0].layer_losses[-1] - 0.3


def test_time_is_up_before_the_last_step(out: Path) -> None:
    assert not demo.train_demo(out, recipe=recipe(), minutes=0, threads=1)
    assert (out / run.STATE).exists()


def test_another_recipe_is_refused_but_more_steps_are_not(out: Path) -> None:
    demo.train_demo(out, recipe=recipe(steps=2), threads=1)
    with pytest.raises(UserError, match=r"training\.pt: seed was 0 .* expected 9"):
        demo.train_demo(out, recipe=recipe(seed=9), threads=1)
    assert demo.train_demo(out, recipe=recipe(steps=4), threads=1)


def test_a_draft_begins_as_the_targets_first_layers_and_learns_from_it(
    out: Path, tmp_path: Path
) -> None:
    demo.train_demo(out, recipe=recipe(steps=2), threads=1)
    target = checkpoint.load(out)
    begun = draft.first_layers(target, 1)
    ids = torch.randint(5, 100, (1, 9))
    expected = target.hidden_states(ids, torch.float32)[0]
    torch.testing.assert_close(begun.hidden_states(ids, torch.float32)[-1], expected)

    reports: list[Any] = []
    small = recipe(steps=50, shape=TINY | {"layers": 1}, prompt_weight=0.0)
    assert draft.train_draft(
        out, tmp_path / "draft", recipe=small, threads=1, progress=reports.append
    )
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["num_hidden_layers"] == 1
    assert reports[-1].layer_losses[0] < reports[0].layer_losses[0]
    ours, theirs = out / "tokenizer.json", tmp_path / "draft" / "tokenizer.json"
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_draft_as_deep_as_its_target_is_refused() -> None:
    with pytest.raises(UserError, match="expected 1 to 2"):
        draft.first_layers(Llama(LlamaShape(50, **TINY)), 3)
