"""Exit heads piece by piece: gradients, schedule, states, answers, figures, prompts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.checkpoints import models
from backends.checkpoints.bound_files import write_json
from backends.engine.model.forward import final_logits, hidden_states
from backends.engine.model.heads import folded
from backends.training.classifier.report import auc
from backends.training.exits import answers as exit_answers
from backends.training.exits import cache as exit_cache
from backends.training.exits import data as exit_data
from backends.training.exits import fit as exit_fit
from backends.training.exits.backbone import Backbone, architecture_of, read_backbone
from backends.training.exits.cache import Cache, build_cache
from backends.training.exits.data import TrainPrompt, humaneval_row
from backends.training.exits.recipe import STATE, ExitRecipe
from backends.training.heads import fit as heads_fit
from backends.training.heads.report import Outputs, summarise
from harness.core.errors import UserError
from tests.support.tiny_llama import write_tiny_llama


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = write_tiny_llama(tmp_path_factory.mktemp("model"))
    return read_backbone(folder, architecture_of(folder), "cpu")


def kl_by_autograd(head: Tensor, states: Tensor, parameters: list[Tensor]) -> Tensor:
    final = (states[-1] @ head.T).log_softmax(-1)
    losses = []
    for x, parameter in zip(states[:-1], parameters, strict=True):
        whole = parameter.shape == head.shape
        own = (x @ parameter.T if whole else x @ parameter.T @ head.T).log_softmax(-1)
        losses.append((final.exp() * (final - own)).sum())
    return torch.stack(losses)


@pytest.mark.parametrize("kind", ["lightweight", "full"])
def test_the_written_out_gradient_is_autograds(kind: str) -> None:
    torch.manual_seed(0)
    head, states = torch.randn(37, 8), torch.randn(3, 11, 8)
    shape = (37, 8) if kind == "full" else (8, 8)
    parameters = [torch.randn(shape).requires_grad_() for _ in range(2)]
    expected = kl_by_autograd(head, states, parameters)
    slopes = torch.autograd.grad(expected.sum(), parameters)
    with torch.no_grad():
        losses, found = heads_fit.gradients(head, states, parameters)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(found, torch.stack(slopes), rtol=1e-4, atol=1e-5)


def test_the_identity_is_the_models_own_head_on_a_middle_layer(backbone: Backbone) -> None:
    ids = torch.randint(2, 258, (2, 9), generator=torch.Generator().manual_seed(0))
    raw = hidden_states(backbone.weights, backbone.architecture, ids, (3,))[3]
    matrix = folded(backbone.head, torch.eye(256))
    assert torch.equal(matrix, backbone.head)
    own = backbone.states(ids, (3,))[3] @ matrix.T
    torch.testing.assert_close(own, final_logits(backbone.weights, raw))


def test_the_rate_rises_for_three_hundredths_and_falls_as_a_cosine() -> None:
    factors = [exit_fit.schedule(step, 1000, 0.03) for step in range(1000)]
    assert factors[0] == pytest.approx(1 / 30)
    assert factors[29] == factors[30] == 1
    assert factors[30 + 485] == pytest.approx(0.5)
    assert all(a > b for a, b in itertools.pairwise(factors[30:]))
    assert 0 < factors[-1] < 1e-5
    assert exit_fit.schedule(0, 1, 0.03) == 1


def pairs_of(lengths: list[tuple[int, int]]) -> list[tuple[TrainPrompt, list[int]]]:
    generator = torch.Generator().manual_seed(1)

    def draw(count: int) -> list[int]:
        ids: list[int] = torch.randint(2, 258, (count,), generator=generator).tolist()
        return ids

    names = itertools.cycle(["gsm8k", "xsum"])
    return [
        (TrainPrompt(next(names), str(i), draw(prompt), 64, False), draw(answer))
        for i, (prompt, answer) in enumerate(lengths)
    ]


@pytest.mark.parametrize("tokens", [1, 24, 10_000])
def test_cached_states_are_those_of_each_text_alone(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """However many share a pass. An answer's first token is the first position, its last none."""
    monkeypatch.setitem(exit_cache.TOKENS, "cpu", tokens)
    (tmp_path / STATE).mkdir()
    pairs = pairs_of([(5, 4), (2, 9), (7, 1), (3, 2)])
    cache = build_cache(tmp_path, "some", backbone, (2, 5), pairs, lambda done: True)
    assert cache is not None
    assert (cache.starts, cache.workloads) == ([0, 3, 11, 12], ["gsm8k", "xsum", "xsum"])
    for number, (prompt, answer) in enumerate([pairs[0], pairs[1], pairs[3]]):
        alone = backbone.states(torch.tensor([prompt.ids + answer[:-1]]), (2, 5, 8))
        expected = torch.stack([alone[tap][0, len(prompt.ids) :] for tap in (2, 5, 8)])
        (found,) = cache.batch([number])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_finished_states_are_read_again_and_others_are_made(
    backbone: Backbone, tmp_path: Path
) -> None:
    (tmp_path / STATE).mkdir()
    pairs = pairs_of([(5, 4), (2, 9)])
    assert build_cache(tmp_path, "some", backbone, (2,), pairs, lambda done: False) is None
    first = build_cache(tmp_path, "some", backbone, (2,), pairs, lambda done: True)

    def never(done: int) -> bool:
        raise AssertionError("the states were there")

    again = build_cache(tmp_path, "some", backbone, (2,), pairs, never)
    assert first is not None
    assert again is not None
    assert torch.equal(first.states, again.states)


def test_states_larger_than_the_disk_are_refused(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / STATE).mkdir()
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"need 0\.0 GB and 0\.0 GB are free; fewer --rows"):
        build_cache(tmp_path, "x", backbone, (2,), pairs_of([(5, 4)]), lambda done: True)
    with pytest.raises(UserError, match="all 1 held-out answers of the model are a single token; "):
        build_cache(tmp_path, "held-out", backbone, (2,), pairs_of([(5, 1)]), lambda done: True)


def test_a_selection_takes_whole_answers_of_the_workloads_in_turn() -> None:
    states = torch.arange(2 * 10 * 1).view(2, 10, 1).float()
    cache = Cache(states, [0, 2, 5, 6, 10], ["a", "a", "a", "b"])
    assert exit_cache.in_turn(cache, 100) == [0, 3, 1, 2]
    assert exit_cache.in_turn(cache, 8) == [0, 3]
    assert exit_cache.in_turn(cache, 1) == [0]
    chosen = exit_cache.select(cache, [3, 0])
    assert (chosen.starts, chosen.workloads) == ([0, 4, 6], ["b", "a"])
    assert chosen.states[0, :, 0].tolist() == [6, 7, 8, 9, 0, 1]


class Parrot:
    """Answers a prompt with its last token, counted up to a stop token; pads as generate does."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.batches: list[int] = []

    def generate(self, ids: Tensor, attention_mask: Tensor, generation_config: Any) -> Tensor:
        assert torch.equal(attention_mask.bool(), ids != 0)
        self.batches.append(len(ids))
        new = ids[:, -1:] + torch.arange(1, generation_config.max_new_tokens + 1)
        return torch.cat([ids, new], dim=1)


def test_answers_end_at_the_stop_token_or_their_limit_and_are_kept_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parrot = Parrot()
    monkeypatch.setattr(exit_answers, "generator", lambda *_: parrot)
    monkeypatch.setattr(exit_answers, "BATCH", 2)
    (tmp_path / STATE).mkdir()
    prompts = [
        TrainPrompt("gsm8k", "0", [9, 9, 5], 4, False),
        TrainPrompt("xsum", "1", [6], 3, False),
        TrainPrompt("gsm8k", "2", [20], 4, False),
    ]
    expected = [[6, 7], [7], [21, 22, 23, 24]]

    def ask(budget: int) -> list[list[int]] | None:
        def going_on(done: int) -> bool:
            return done < budget

        return exit_answers.answers(tmp_path, prompts, tmp_path, [7], torch.zeros(1), going_on)

    assert ask(2) is None
    kept = (tmp_path / STATE / "answers.jsonl").read_text()
    (tmp_path / STATE / "answers.jsonl").write_text(kept + "[[0, [6")
    assert ask(3) == expected
    assert parrot.batches == [2, 1]
    assert ask(0) == expected


def test_a_heads_figures_are_counted_where_asked() -> None:
    out = Outputs(
        confidence=torch.tensor([[0.05], [0.76], [0.75], [0.999], [1.0]]),
        agrees=torch.tensor([[False], [True], [False], [True], [False]]),
        kl=torch.tensor([[4.0], [1.0], [1.0], [0.0], [9.0]]),
    )
    found = summarise(out, 0, torch.tensor([True, True, True, True, False]))
    assert (found["kl"], found["agreement"]) == (1.5, 0.5)
    assert found["histogram"]["count"] == [1, 0, 0, 0, 0, 0, 0, 2, 0, 1]
    assert found["histogram"]["agreement"] == [0.0, *[None] * 6, 0.5, None, 1.0]
    assert found["over"]["0.75"] == {"share": 0.5, "agreement": 1.0}
    assert found["over"]["0.7"] == {"share": 0.75, "agreement": 0.66667}
    nobody = summarise(out, 0, torch.tensor([True, False, False, False, False]))
    assert nobody["over"]["0.5"] == {"share": 0.0, "agreement": None}


def test_the_area_under_the_curve_counts_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (60,), generator=generator).float()
    labels = torch.rand(60, generator=generator) < 0.4
    pairs = [
        1.0 if good > bad else 0.5 if good == bad else 0.0
        for good in scores[labels].tolist()
        for bad in scores[~labels].tolist()
    ]
    assert auc(scores, labels) == pytest.approx(sum(pairs) / len(pairs))
    assert auc(scores, torch.ones(60, dtype=torch.bool)) is None


def test_an_mbpp_row_becomes_a_function_to_complete() -> None:
    row = {
        "text": 'Write a function to double a """number""".',
        "code": "def helper(x):\r\n\treturn x\r\ndef twice (n):\r\n\treturn helper(n) * 2",
        "test_list": "assert (twice(2)) == 4\nassert twice(0) == 0",
    }
    assert humaneval_row(row) == {
        "prompt": (
            "def twice(n):\n"
            "    \"\"\"Write a function to double a '''number'''.\n\n"
            "    assert (twice(2)) == 4\n"
            '    """\n'
        )
    }
    assert humaneval_row(row | {"code": "class Twice:\n    pass"}) is None


def test_real_training_rows_become_prompts(shared_data: Path) -> None:
    """Files of a folder per workload; for HumanEval those of MBPP, whose rows are all usable."""
    tokenizer = models.load_tokenizer(models.BUNDLED["demo"])
    recipe = ExitRecipe("", (1,), ("humaneval", "gsm8k"), source=str(shared_data), rows=120)
    prompts = exit_data.read_prompts(recipe, tokenizer, 4096)
    assert {name: [p.workload for p in prompts].count(name) for name in recipe.workloads} == {
        "humaneval": 120,
        "gsm8k": 120,
    }
    assert sum(prompt.held_out for prompt in prompts) == 24
    text = tokenizer.decode(prompts[0].ids)
    assert "Complete this Python function.\n\ndef " in text
    assert "assert " in text


def test_json_keeps_a_heads_figures_on_a_line(tmp_path: Path) -> None:
    content = {"a": {"b": {"c": {"d": {"e": {"f": [1, None]}}}}}, "g": [1, 2], "h": {}}
    write_json(tmp_path / "x.json", content)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == content
    assert '    "e": {"f": [1, null]}\n' in text
    assert text.count("\n") == 13
