"""Several sets of layers, each workload's quality by itself, and task scores."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.early_exit.calibration import calibrate
from backends.early_exit.calibration.answers import SUFFIX
from backends.early_exit.calibration.files import Calibration, open_calibration
from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.learn_then_test import accepted, p_value
from backends.early_exit.calibration.losses import AnswerLosses, HeldQuality
from backends.early_exit.calibration.outcome import NotHeldError
from backends.early_exit.calibration.prompts import CalibrationPrompt
from backends.early_exit.calibration.settings import Settings
from backends.early_exit.sizes import NamedSizes
from harness.core.errors import UserError
from harness.core.nouns import Model
from tests.support.exits.calibrating import DEMO, GRID, SETTINGS, run, wrong
from tests.support.exits.fake_exits import Opener

SETS = ((3, 5), (2, 4), (1, 7))


def test_the_set_with_the_fewest_layers_is_chosen(engines: Opener, tmp_path: Path) -> None:
    found = run(tmp_path / "c.json", candidates=SETS)
    assert found.layers == (2, 4)
    level = 0.05 / 3
    values = [p_value(wrong(threshold), 0.4, binary=True) for threshold in GRID]
    assert found.thresholds[0] == GRID[accepted(values, level) - 1]
    assert found.curve[-1].p_value > level
    assert [one["layers"] for one in found.candidates] == [list(layers) for layers in SETS]
    chosen = [one["threshold"] for one in found.candidates]
    assert chosen == [found.thresholds[0], found.thresholds[0], None], "layer 7 is always wrong"
    three, two, _ = found.candidates
    assert two["mean_exit_layer"] == found.chosen.mean_exit_layer < three["mean_exit_layer"]
    assert "the best of 3 sets of layers" in found.statement
    assert open_calibration(tmp_path / "c.json", DEMO) == found


def test_what_checks_cost_is_part_of_the_choice(
    engines: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of softmax, whose checks read a head: `state` has none to read."""
    sets = ((4,), (2, 4))
    softmax = replace(SETTINGS, measure="softmax")
    for number, (settings, head, chosen) in enumerate(
        ((softmax, 0.01, (2, 4)), (softmax, 10.0, (4,)), (SETTINGS, 10.0, (2, 4)))
    ):
        sizes = NamedSizes(8, 1024, head)
        monkeypatch.setattr(calibrate, "named_sizes", lambda _, sizes=sizes: sizes)
        found = run(tmp_path / f"{number}.json", settings, candidates=sets)
        assert found.layers == chosen
        one, two = found.candidates
        assert one["mean_exit_layer"] == 4 > two["mean_exit_layer"]
        cost = one["cost_layers"] - one["mean_exit_layer"]
        assert cost == pytest.approx(head if settings is softmax else 0), "one check a token"
        assert 1 < two_checks(found, tmp_path) < 2


def two_checks(found: Calibration, folder: Path) -> float:
    """Checks of a token where two layers are checked, by the answers."""
    path = next(folder.glob(f"*.layers-2-4{SUFFIX}"))
    groups = [json.loads(line) for line in path.read_text().splitlines()]
    asked = [one for one in groups if one.get("threshold") == found.thresholds[0]]
    return float(sum(one["checks"] for one in asked) / sum(one["steps"] for one in asked))


def test_the_full_model_answers_once_for_all_sets(engines: Opener, tmp_path: Path) -> None:
    run(tmp_path / "c.json", candidates=SETS)
    full = [sum(n for t, n in engine.decoded if t is None) for engine in engines.opened]
    assert full == [80, 0, 0]
    assert all(engine.closed for engine in engines.opened)


def test_sets_are_taken_up_where_a_calibration_ended(engines: Opener, tmp_path: Path) -> None:
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if len(engines.opened) == 2 and asked % 97 == 0:
            raise KeyboardInterrupt

    engines.on_poll = stop
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "c.json", candidates=SETS)
    engines.on_poll = lambda: None
    before = engines.decoded()
    found = run(tmp_path / "c.json", candidates=SETS)
    again = engines.decoded() - before
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"c.json.layers-{s}{SUFFIX}" for s in ("3-5", "2-4", "1-7")} < names
    assert found == run(tmp_path / "whole.json", candidates=SETS)
    # one group at most was asked twice
    assert before + again <= engines.decoded() - before - again + 1


def test_sets_that_are_tried_one_after_the_other_are_choices(
    engines: Opener, tmp_path: Path
) -> None:
    assert run(tmp_path / "a.json", replace(SETTINGS, layers=(3, 5))).earlier_choices == 0
    second = run(tmp_path / "b.json", replace(SETTINGS, layers=(2, 4)))
    assert second.statement.endswith(
        "; after 1 earlier choice on these prompts, not corrected for."
    )
    both = run(tmp_path / "c.json", candidates=((3, 5), (2, 4)))
    assert both.earlier_choices == 2, "its own sets are one choice"
    kept = tuple(str(tmp_path / f"{name}.json") for name in "abc")
    fresh = run(tmp_path / "d.json", replace(SETTINGS, without=kept))
    assert fresh.earlier_choices == 0, "other prompts"
    (tmp_path / "other").mkdir()
    heads = replace(SETTINGS, measure="softmax")
    assert run(tmp_path / "e.json", heads).earlier_choices == 0, "another measure"
    assert run(tmp_path / "other" / "a.json").earlier_choices == 0


def test_where_no_set_holds_that_is_said(engines: Opener, tmp_path: Path) -> None:
    with pytest.raises(NotHeldError, match="no threshold holds"):
        run(tmp_path / "c.json", replace(SETTINGS, target=0.95), candidates=((2, 4), (1, 7)))
    assert not (tmp_path / "c.json").exists()


def test_a_choice_among_sets_keeps_the_confidence() -> None:
    """Four sets, none of which holds the limit at any threshold: any choice is wrong."""
    rng, runs, wrongly = random.Random(0), 2000, 0
    for _ in range(runs):
        chosen = 0
        for _ in range(4):
            values = [
                p_value([float(rng.random() < 0.105) for _ in range(100)], 0.1, binary=True)
                for _ in range(3)
            ]
            chosen += accepted(values, 0.05 / 4) > 0
        wrongly += chosen > 0
    assert wrongly / runs < 0.05


NUMBERS = ("#### 7", "#### 8", "nothing")


class WordTokens:
    """Token n is text n of a list. With special tokens it is a prompt that is decoded: answers are
    without."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        return " ".join(NUMBERS[n] for n in ids) if skip_special_tokens else "a question"


def scored(full: list[int], own: list[int], workloads: list[str], **changes: Any) -> HeldQuality:
    """What these answers come to: GSM8K wants 7, XSum "nothing"."""
    data = {"gsm8k": {"question": "?", "answer": "#### 7"},
            "xsum": {"document": "d", "summary": "nothing", "id": "1"}}  # fmt: skip
    asked = {"metric": "score", "per": "worst", "target": 0.5, **changes}
    settings = Settings("demo", "state", tuple(dict.fromkeys(workloads)), **asked)
    groups = [
        [CalibrationPrompt(name, f"{name}/{n}", (n,), 9, data[name])]
        for n, name in enumerate(workloads)
    ]
    answered = [[AnsweredGroup(((n,),), 1, 1, 1) for n in side] for side in (full, own)]
    return AnswerLosses(settings, groups, WordTokens()).held(*answered)


def test_a_lost_score_is_a_loss_and_a_gain_makes_up_for_nothing() -> None:
    names = ["gsm8k"] * 4
    assert scored([0, 0, 0, 1], [0, 1, 2, 0], names).quality == 0.5
    assert scored([1, 1, 1, 1], [0, 2, 1, 1], names).quality == 1.0, "wrong before"
    assert scored([0, 0, 0, 0], [0, 0, 0, 0], names).quality == 1.0


def test_the_worst_workload_counts() -> None:
    names = ["gsm8k", "xsum"] * 3
    full, own = [0, 2] * 3, [1, 2, 1, 2, 0, 2]
    worst, mixture = scored(full, own, names), scored(full, own, names, per="mixture")
    assert worst.quality == pytest.approx(1 / 3)
    assert mixture.quality == pytest.approx(2 / 3)
    assert worst.p_value == p_value([1.0, 1.0, 0.0], 0.5, binary=True)
    assert mixture.p_value == p_value([1, 0, 1, 0, 0, 0], 0.5)
    assert worst.at_least < mixture.at_least


def test_right_or_wrong_is_tested_exactly() -> None:
    one = Settings("demo", "state", ("gsm8k", "xsum"), metric="score", per="worst")
    assert [one.binary_for(name) for name in one.workloads] == [True, False]
    assert not replace(one, batch=2).binary_for("gsm8k")
    assert replace(one, workloads=("humaneval",)).binary


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"per": "best"}, "--per: unknown per 'best'"),
        ({"backend": "own-early-exits"}, "did you mean 'own-early-exit'"),
        ({"backend": "own-early-exit", "batch": 2}, "--batch: goes with --backend vllm-early"),
        ({"metric": "score", "per": "worst", "rows": 4}, "8 prompts of each workload|cannot show"),
    ],
)
def test_what_cannot_be_is_refused(
    engines: Opener, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        run(tmp_path / "c.json", replace(SETTINGS, **changes))
    assert engines.opened == []


def test_rows_without_what_scores_them_are_refused(engines: Opener, tmp_path: Path) -> None:
    source = tmp_path / "rows"
    source.mkdir()
    lines = [f'{{"prompt": "def f{n}():", "text": "f", "code": "def f{n}():\\n  pass", '
             f'"test_list": ["assert f{n}() == 1"], "task_id": {n}}}'
             for n in range(60)]  # fmt: skip
    (source / "mbpp.jsonl").write_text("\n".join(lines))
    settings = replace(
        SETTINGS, workloads=("humaneval",), metric="score", source=str(source / "mbpp.jsonl")
    )
    with pytest.raises(UserError, match=r"--risk: workload humaneval, row .* and so no score"):
        run(tmp_path / "c.json", settings)


def test_our_own_engine_gives_a_calibration_that_it_uses(tmp_path: Path) -> None:
    settings = Settings(
        "demo", "softmax", ("gsm8k",), metric="score", per="worst", target=0.5, rows=24,
        grid=(0.9, 0.2), layers=(3, 4), backend="own-early-exit",
    )  # fmt: skip
    found = run(tmp_path / "c.json", settings)
    assert found.backend.startswith("own-early-exit")
    assert found.layers == (3, 4)
    assert found.test == "exact binomial"
    assert 3 <= found.chosen.mean_exit_layer < 5
    assert found.chosen.early_exit_rate > 0.3
    assert 1 < found.chosen.checks < 2, "the first exit is asked always, the second by the rest"
    options = {"measure": "softmax", "calibration": str(tmp_path / "c.json")}
    opened = backends.open_backend("own-early-exit", DEMO, Model("demo", dtype="float32"), options)
    try:
        assert opened.info.options["thresholds"] == list(found.thresholds)
        assert opened.info.measured.calibration == found.statement
    finally:
        opened.close()
