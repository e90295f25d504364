"""The answers that exits learn from: greedy ones, kept for others, in batches that fit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from backends.checkpoints import models
from backends.training.exits import answers as exit_answers
from backends.training.exits.answers import answers, position_bytes
from backends.training.exits.data import TrainPrompt
from backends.training.exits.kept import KeptAnswers
from backends.training.exits.memory import in_halves
from backends.training.exits.recipe import STATE
from harness.core.errors import UserError
from tests.support.engine.tiny_heads import StandInKillError, killer, train

PROMPTS = [
    TrainPrompt("gsm8k", str(i), list(range(20 + i, 40 + 3 * i)), 24, False) for i in range(4)
]


def answered(model: Path, out: Path) -> list[list[int]] | None:
    (out / STATE).mkdir(parents=True)
    return answers(out, PROMPTS, model, models.stop_ids(model), torch.zeros(1), lambda done: True)


@pytest.mark.parametrize("setting", [{"repetition_penalty": 5.0}, {"no_repeat_ngram_size": 1}])
def test_a_checkpoints_generation_settings_change_no_answer(
    model: Path, tmp_path: Path, setting: dict[str, Any]
) -> None:
    expected = answered(model, tmp_path / "plain")
    other = Path(shutil.copytree(model, tmp_path / "model"))
    path = other / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | setting))
    assert answered(other, tmp_path / "out") == expected


def test_another_training_on_the_same_prompts_takes_the_answers_that_are_there(
    model: Path, tmp_path: Path
) -> None:
    for out in ("one", "other"):
        seen: list[str] = []

        def until_the_states(progress: Any, seen: list[str] = seen) -> None:
            seen.append(progress.stage)
            killer("hidden states, training", 0)(progress)

        layers = {"one": "1,3", "other": "2"}[out]
        with pytest.raises(StandInKillError):
            train(model, tmp_path / out, layers=layers, progress=until_the_states)
        assert ("answers" in seen) == (out == "one")
    kept, again = (tmp_path / out / STATE / "answers.jsonl" for out in ("one", "other"))
    assert made_in(kept) == made_in(again)


def made_in(path: Path) -> dict[int, list[int]]:
    """Answers by their prompt's place."""
    return {
        number: ids for line in path.read_text().splitlines() for number, ids in json.loads(line)
    }


def test_fewer_and_more_rows_take_what_is_there(model: Path, tmp_path: Path) -> None:
    seen: dict[int, list[tuple[int, int]]] = {}
    for rows in (6, 4, 9):
        seen[rows] = []

        def until_the_states(progress: Any, asked: list[tuple[int, int]] = seen[rows]) -> None:
            if progress.stage == "answers":
                asked.append((progress.done, progress.total))
            killer("hidden states, training", 0)(progress)

        with pytest.raises(StandInKillError):
            train(model, tmp_path / str(rows), rows=rows, progress=until_the_states)
    assert seen == {6: [(0, 6)], 4: [], 9: [(6, 9)]}
    six, nine = (made_in(tmp_path / name / STATE / "answers.jsonl") for name in ("6", "9"))
    assert {number: nine[number] for number in six} == six


def test_what_was_answered_before_a_stop_is_kept_for_others(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops, like = models.stop_ids(model), torch.zeros(1)
    kept = KeptAnswers(tmp_path / "kept.jsonl")
    (tmp_path / STATE).mkdir()

    def killed(done: int) -> bool:
        if done:
            raise StandInKillError
        return True

    monkeypatch.setattr(exit_answers, "BATCH", 3)
    with pytest.raises(StandInKillError):
        answers(tmp_path, PROMPTS, model, stops, like, killed, kept)
    assert len(kept.find(PROMPTS)) == 3
    assert kept.find([replace(PROMPTS[0], limit=23)]) == {}, "another limit, another answer"


def test_kept_answers_that_are_not_whole_are_made_anew(model: Path, tmp_path: Path) -> None:
    (tmp_path / STATE).mkdir()
    kept = KeptAnswers(tmp_path / "kept.jsonl")
    kept.path.write_text('[[0, [5, 6]]]\n5\n["x", 7]\n["x", ["y"]]\n["x", []]\n\'\n')
    stops, like = models.stop_ids(model), torch.zeros(1)
    found = answers(tmp_path, PROMPTS, model, stops, like, lambda done: True, kept)
    assert found == answered(model, tmp_path / "plain")
    assert found is not None
    assert kept.find(PROMPTS) == dict(enumerate(found))


def test_on_a_gpu_batches_are_of_what_its_free_memory_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = SimpleNamespace(
        num_hidden_layers=32,
        num_key_value_heads=8,
        num_attention_heads=32,
        hidden_size=4096,
        intermediate_size=14336,
    )
    assert position_bytes(config, 2) == 2 * (2 * 32 * 8 * 128 + 4 * (4096 + 14336))
    like: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16)
    long = [TrainPrompt("xsum", str(i), [1] * 2436, 64, False) for i in range(64)]
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1 << 30)
    taken = {}
    for free in (0, 8 << 30, 78 << 30):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 80 << 30))
        model = SimpleNamespace(config=config)
        taken[free >> 30] = exit_answers._side_by_side(model, like, long)
    assert taken == {0: 1, 8: 9, 78: 64}


def test_what_does_not_fit_is_done_in_halves_and_one_text_alone_is_refused() -> None:
    asked: list[list[int]] = []

    def work(texts: list[int]) -> list[int]:
        asked.append(texts)
        if len(texts) > 2 or 9 in texts:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore.")
        return [10 * text for text in texts]

    assert list(in_halves(work, [1, 2, 3])) == [([1], [10]), ([2, 3], [20, 30])]
    assert asked == [[1, 2, 3], [1], [2, 3]]
    with pytest.raises(UserError, match=r"on one text \(CUDA out of memory.*2 GiB\.\)"):
        list(in_halves(work, [8, 9]))


def test_a_gpu_that_is_too_small_is_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(exit_answers, "generator", never)
    with pytest.raises(UserError, match=r"too little memory for this training \(CUDA"):
        train(model, tmp_path)
