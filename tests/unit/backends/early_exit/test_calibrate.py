"""The calibration's driver, against a backend whose answers are known in advance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import backends
from backends import models
from backends.early_exit.calibrate import Progress, calibrate
from backends.early_exit.calibration import open_calibration
from backends.early_exit.calibration_prompts import read_groups
from backends.early_exit.calibration_settings import Settings
from backends.early_exit.learn_then_test import p_value
from harness.core import UserError
from results.rouge import rouge_l
from tests.unit.backends.early_exit.fake_exits import DEPTH, Opener, hardness

DEMO = models.BUNDLED["demo"]
GRID = (0.95, 0.9, 0.8, 0.7, 0.5, 0.2)
SETTINGS = Settings(
    model="demo",
    measure="state",
    workloads=("gsm8k", "xsum"),
    metric="consistency",
    target=0.6,
    rows=40,
    grid=GRID,
)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Opener:
    opener = Opener()
    monkeypatch.setattr(backends, "open_backend", opener)
    return opener


def prompts(settings: Settings = SETTINGS) -> list[tuple[int, ...]]:
    groups = read_groups(settings, DEMO, models.load_tokenizer(DEMO))
    return [prompt.ids for group in groups for prompt in group]


def wrong(threshold: float, settings: Settings = SETTINGS) -> list[float]:
    return [float(hardness(ids) > threshold) for ids in prompts(settings)]


def run(out: Path, settings: Settings = SETTINGS, **more: Any) -> Any:
    return calibrate(settings, out, rouge=rouge_l, **more)


def test_the_last_threshold_that_is_accepted_in_turn_is_chosen(
    engines: Opener, tmp_path: Path
) -> None:
    found = run(tmp_path / "c.json")
    values = [p_value(wrong(t), 0.4, binary=True) for t in GRID]
    stop = next(i for i, value in enumerate(values) if value > 0.05)
    assert 1 < stop < len(GRID) - 1
    assert found.thresholds == (GRID[stop - 1],) * 2
    assert [point.threshold for point in found.curve] == list(GRID[: stop + 1])
    assert [point.p_value for point in found.curve] == pytest.approx(values[: stop + 1])
    losses = wrong(GRID[stop - 1])
    assert found.risk == pytest.approx(sum(losses) / 80)
    assert found.risk < found.bound < 0.4
    assert found.test == "exact binomial"
    assert found.prompts == {"gsm8k": 40, "xsum": 40}
    assert found.layers == (2, 4)
    assert (found.batch, found.seed, found.dtype) == (1, 10_000, "float32")
    assert found.backend == "vllm-early-exit 1.2"
    assert "With 95% confidence over the draw of 80 calibration prompts" in found.statement
    assert f"equal to the full model's is at least 0.6 at threshold {GRID[stop - 1]:g}" in (
        found.statement
    )
    assert open_calibration(tmp_path / "c.json", DEMO) == found
    assert engines.opened[0].closed


def test_exit_figures_are_those_of_the_decoded_tokens(engines: Opener, tmp_path: Path) -> None:
    found = run(tmp_path / "c.json")
    backend = engines.opened[0]
    for point in found.curve:
        backend.setting = {"measure": "state", "threshold": point.threshold}
        lengths = [(len(backend.answer(ids)) - 1, backend.is_wrong(ids)) for ids in prompts()]
        steps = sum(length for length, _ in lengths)
        layers = sum(length * (2 if early else 4) for length, early in lengths)
        assert point.mean_exit_layer == pytest.approx(layers / steps)
        assert point.early_exit_rate == pytest.approx(1 - layers / steps / DEPTH)


def test_the_whole_curve_is_measured_but_not_chosen_from(engines: Opener, tmp_path: Path) -> None:
    short = run(tmp_path / "short.json")
    whole = run(tmp_path / "whole.json", replace(SETTINGS, whole_curve=True))
    assert len(whole.curve) == len(GRID) > len(short.curve)
    assert [point.tested for point in whole.curve].count(True) == len(short.curve)
    assert whole.thresholds == short.thresholds


def test_rouge_is_taken_of_the_texts(engines: Opener, tmp_path: Path) -> None:
    found = run(tmp_path / "c.json", replace(SETTINGS, metric="rouge_l"))
    tokenizer, backend = models.load_tokenizer(DEMO), engines.opened[0]
    full = tokenizer.decode(backend.right)
    loss = 1 - rouge_l(full, tokenizer.decode(backend.right[:4] + backend.wrong))
    assert 0 < loss < 1
    assert found.test == "Hoeffding-Bentkus"
    for point in found.curve:
        losses = wrong(point.threshold)
        assert point.quality == pytest.approx(1 - loss * sum(losses) / len(losses))
        scaled = [loss * value for value in losses]
        assert point.p_value == pytest.approx(p_value(scaled, 0.4))


@pytest.mark.parametrize("batch", [4, 7])
def test_a_batch_is_one_observation(engines: Opener, tmp_path: Path, batch: int) -> None:
    settings = replace(SETTINGS, batch=batch)
    found = run(tmp_path / "c.json", settings)
    whole = 80 // batch * batch
    assert sum(found.prompts.values()) == whole
    losses = wrong(0.95, settings)
    groups = [sum(losses[i : i + batch]) / batch for i in range(0, whole, batch)]
    assert found.curve[0].p_value == pytest.approx(p_value(groups, 0.4))
    assert found.test == "Hoeffding-Bentkus"
    assert {count for _, count in engines.opened[0].decoded} == {batch}
    assert f"decoded {batch} at a time" in found.statement
    assert engines.opened[0].options["max_num_seqs"] == batch


class KilledError(BaseException):
    """Stands for Ctrl-C or a kill: nothing in the project catches it."""


@pytest.mark.parametrize("polls", [5, 900, 2000, 3500])
def test_what_was_answered_before_a_kill_is_not_answered_again(
    engines: Opener, tmp_path: Path, polls: int
) -> None:
    plain = run(tmp_path / "plain.json")
    once = engines.decoded()
    left = iter(range(polls))

    def die() -> None:
        if next(left, None) is None:
            raise KilledError

    engines.on_poll = die
    with pytest.raises(KilledError):
        run(tmp_path / "c.json")
    assert engines.opened[-1].closed
    engines.on_poll = lambda: None
    assert run(tmp_path / "c.json") == plain
    assert once <= engines.decoded() - once <= once + 1


def test_a_line_that_a_kill_cut_short_is_dropped(engines: Opener, tmp_path: Path) -> None:
    plain = run(tmp_path / "c.json")
    answers = tmp_path / "c.json.answers.jsonl"
    before = answers.read_bytes()
    answers.write_bytes(before[:-9])
    decoded = engines.decoded()
    assert run(tmp_path / "c.json") == plain
    assert engines.decoded() == decoded + 1
    assert answers.read_bytes() == before


def test_another_question_to_the_same_answers_needs_no_engine(
    engines: Opener, tmp_path: Path
) -> None:
    found = run(tmp_path / "c.json")
    some: dict[str, Any] = {"grid": GRID[:2]}
    for change in ({}, {"target": 0.5, **some}, {"confidence": 0.9, **some}):
        again = run(tmp_path / "c.json", replace(SETTINGS, **change))
        assert (again == found) == (not change)
    assert len(engines.opened) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 3}, "seed was 10000 in the calibration begun there, now it is 3"),
        ({"rows": 41}, "rows was 40"),
        ({"batch": 2}, "batch was 1"),
        ({"layers": (2,)}, "layers was auto in the calibration begun there, now it is 2"),
        ({"decay": "calm"}, "decay was none"),
        ({"workloads": ("gsm8k",), "rows": 80}, "workloads was gsm8k,xsum"),
        ({"measure": "softmax"}, "measure was state"),
    ],
)
def test_answers_to_something_else_are_not_taken_up(
    engines: Opener, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    run(tmp_path / "c.json")
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", replace(SETTINGS, **change))
    assert told in str(refused.value)
    assert "choose another --out" in str(refused.value)
    assert len(engines.opened) == 1


@pytest.mark.parametrize("text", ["x\n", "[]\n", "{}\n", '{"format": 1}\n', "\xff\xfe\n"])
def test_a_foreign_answer_file_is_refused(engines: Opener, tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json.answers.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="line 1 was not written by this command"):
        run(tmp_path / "c.json")
    assert (tmp_path / "c.json.answers.jsonl").read_bytes() == text.encode("latin-1")


def test_two_calibrations_do_not_write_one_file(engines: Opener, tmp_path: Path) -> None:
    refused: list[str] = []

    def second(_: Progress) -> None:
        if not refused:
            with pytest.raises(UserError) as error:
                run(tmp_path / "c.json")
            refused.append(str(error.value))

    run(tmp_path / "c.json", progress=second)
    assert "another calibration is writing into it" in refused[0]


def test_too_few_prompts_are_refused_before_any_work(engines: Opener, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", replace(SETTINGS, target=0.97))
    assert str(refused.value) == (
        "--rows: 80 prompts cannot show a quality of 0.97 with 95% confidence, even without a "
        "fault; 99 can (--rows 50), or take a lower --target"
    )
    with pytest.raises(UserError, match=r"20 groups of 4 prompts .* 59 can \(--rows 118\)"):
        run(tmp_path / "c.json", replace(SETTINGS, batch=4, target=0.95))
    with pytest.raises(UserError, match=r"quality of 0\.999999999 .* ten million cannot"):
        run(tmp_path / "c.json", replace(SETTINGS, target=1 - 1e-9))
    assert engines.opened == []


def test_when_nothing_is_accepted_the_line_says_what_would_be(
    engines: Opener, tmp_path: Path
) -> None:
    quality = 1 - sum(wrong(0.75)) / 80
    hard = replace(SETTINGS, target=quality - 0.02, grid=(0.75, 0.5))
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", hard)
    line = str(refused.value)
    assert f"at 0.75, the highest, 80 prompts have {quality:.3f}" in line
    assert not (tmp_path / "c.json").exists()
    rows, target = line.split("--rows ")[1].split(")")[0], line.split("--target ")[1].split()[0]
    decoded = engines.decoded()
    lower = run(tmp_path / "c.json", replace(hard, target=float(target)))
    assert lower.thresholds[0] == 0.75
    assert engines.decoded() <= decoded + 80, "the highest threshold's answers were kept"
    assert int(rows) > 40
    with pytest.raises(UserError, match=r"shows 0\.\d+; --target [0-9.]+ or higher thresholds"):
        run(tmp_path / "c.json", replace(hard, target=quality + 0.02))


def test_an_engine_that_refuses_a_prompt_is_told_in_one_line(
    engines: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.core import Commit
    from tests.unit.backends.early_exit.fake_exits import FakeExits

    monkeypatch.setattr(
        FakeExits, "_commit", lambda _, name: Commit(name, (), "error", error="too long")
    )
    with pytest.raises(UserError, match=r"workload gsm8k, row \w+: too long"):
        run(tmp_path / "c.json")
    assert engines.opened[0].closed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"measure": "sofmax"}, "--measure: unknown measure 'sofmax'; did you mean 'softmax'?"),
        ({"measure": "static"}, "--measure: unknown measure 'static'"),
        ({"metric": "rouge"}, "--metric: unknown metric 'rouge'; did you mean 'rouge_l'?"),
        ({"decay": "exp"}, "--decay: unknown decay 'exp'"),
        ({"target": 0.0}, "--target: expected a number between 0 and 1, got 0"),
        ({"target": 1.0}, "--target: expected a number between 0 and 1, got 1"),
        ({"target": float("nan")}, "--target: expected"),
        ({"confidence": 95.0}, "--confidence: expected a number between 0 and 1, got 95"),
        ({"rows": 1}, "--rows: expected at least 2, got 1"),
        ({"batch": 0}, "--batch: expected at least 1, got 0"),
        ({"seed": -1}, "--seed: expected at least 0, got -1"),
        ({"tau": float("inf")}, "--decay-tau: expected"),
        ({"grid": (0.5, 1.0)}, "--grid: 1: expected thresholds from 0 to below 1"),
        ({"grid": (0.5, float("nan"))}, "--grid: nan"),
        ({"grid": (0.5, 0.5)}, "--grid: 0.5 is named twice"),
        ({"grid": ()}, "--grid: no threshold"),
        ({"heads": "mixed"}, "--heads: goes with --measure softmax, not state"),
        ({"classifier": "x"}, "--classifier: goes with --measure classifier, not state"),
        ({"measure": "softmax", "heads": "mixd"}, "did you mean 'mixed'?"),
        ({"measure": "classifier", "classifier": "x"}, "no folder 'x'"),
        ({"workloads": ("gsm",)}, "did you mean 'gsm8k'?"),
        ({"workloads": ("gsm8k", "gsm8k")}, "'gsm8k' is named twice"),
        ({"model": "dmo"}, "did you mean 'demo'?"),
        ({"source": "nowhere"}, "source 'nowhere' does not exist"),
    ],
)
def test_bad_settings_are_refused_before_any_work(
    engines: Opener, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", replace(SETTINGS, **change))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert engines.opened == []
    assert list(tmp_path.iterdir()) == []


def test_an_out_that_cannot_be_written_is_refused_before_any_work(
    engines: Opener, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data.json").write_text(json.dumps({"my": "data"}))
    for name, told in (
        ("", "is a folder"),
        ("missing/c.json", "no folder"),
        ("notes.txt", "exists and is no calibration"),
        ("data.json", "exists and is no calibration"),
        ("notes.txt/c.json", "no folder"),
    ):
        with pytest.raises(UserError, match=told):
            run(tmp_path / name)
    assert engines.opened == []


def test_trained_heads_are_pinned_by_their_content(engines: Opener, tmp_path: Path) -> None:
    settings = replace(SETTINGS, measure="softmax", heads="mixed")
    found = run(tmp_path / "c.json", settings)
    assert found.heads == "mixed"
    assert found.parameters is not None
    assert len(found.parameters) == 64
    assert engines.opened[0].options["heads"] == "mixed"
    assert run(tmp_path / "d.json").parameters is None
