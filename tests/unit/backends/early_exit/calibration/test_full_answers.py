"""What a calibration says of the full model's own answers: their limit, and what they score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.early_exit.calibration.files import open_calibration
from backends.early_exit.calibration.outcome import check_full, statement
from backends.early_exit.calibration.prompts import read_groups
from backends.early_exit.calibration.settings import Settings
from backends.own.backend import LONGEST
from harness.core.errors import UserError
from harness.core.nouns import Request
from tests.support.exits.calibrating import DEMO, SETTINGS, prompts, run
from tests.support.exits.fake_exits import TOKENS, FakeExits, Opener
from workloads import workload_info

SCORED = Settings("demo", "state", ("gsm8k", "xsum"), metric="score", target=0.95)
PROMPTS = {"gsm8k": 30, "xsum": 10}


def told(gsm8k: float, xsum: float, cut: float = 0.0) -> dict[str, dict[str, float]]:
    return {
        "gsm8k": {"max_new_tokens": 512, "cut": cut, "score": gsm8k},
        "xsum": {"max_new_tokens": 64, "cut": 0.0, "score": xsum},
    }


def test_a_model_that_scores_nothing_gets_no_guarantee(engines: Opener, tmp_path: Path) -> None:
    """The answer "one two three" is no answer to a word problem: no exit can lose its score."""
    settings = replace(SETTINGS, workloads=("gsm8k",), metric="score", per="worst")
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", settings)
    assert str(refused.value) == (
        "--risk: workload gsm8k: the full model's mean task score is 0, of which --target 0.6 lets "
        "0.4 be lost, so that every threshold would hold it; expected a higher --target, or exact "
        "or rouge_l_to_full"
    )
    assert not (tmp_path / "c.json").exists()
    assert {threshold for threshold, _ in engines.opened[0].decoded} == {None}, "nothing is tested"


def test_a_score_of_which_little_is_left_is_warned_of() -> None:
    assert check_full(SCORED, PROMPTS, told(0.6, 0.2)) == []
    (line,) = check_full(SCORED, PROMPTS, told(0.6, 0.09))
    assert line == (
        "workload xsum: the full model's mean task score is 0.09, of which --target 0.95 lets 0.05 "
        "be lost"
    )
    with pytest.raises(UserError, match=r"--risk: workload gsm8k: .* is 0\.04, of which"):
        check_full(SCORED, PROMPTS, told(0.04, 0.6))
    for metric in ("rouge_l", "consistency"):
        assert check_full(replace(SCORED, metric=metric), PROMPTS, told(0.0, 0.0)) == []


def test_of_a_mixture_the_mean_over_its_prompts_counts() -> None:
    mixture = replace(SCORED, per="mixture")
    assert check_full(mixture, PROMPTS, told(0.2, 0.0)) == []
    with pytest.raises(UserError, match=r"the mixture of workloads: .* score is 0\.025,"):
        check_full(mixture, PROMPTS, told(0.0, 0.1))


def test_the_statement_names_scores_and_limits() -> None:
    said = statement(SCORED, PROMPTS, 0.5, 0, told(0.6123, 0.2))
    assert (
        "(30 gsm8k, 10 xsum) and answers of at most 512 tokens (xsum 64), 1 - the mean task score "
        "lost (the full model scores 0.612 on gsm8k, 0.2 on xsum; gains on other prompts make up "
        "for nothing) is at least 0.95 at threshold 0.5, for each of the workloads"
    ) in said


def test_answers_are_as_long_as_an_experiment_lets_them_be() -> None:
    tokenizer = models.load_tokenizer(DEMO)
    names = ("cnn_dailymail", "xsum", "humaneval", "gsm8k")
    asked = replace(SETTINGS, workloads=names, rows=2)
    for settings, limits in (
        (asked, {name: workload_info(name).max_new_tokens for name in names}),
        (replace(asked, max_new_tokens=9), dict.fromkeys(names, 9)),
    ):
        groups = read_groups(settings, DEMO, tokenizer)
        assert {p.workload: p.limit for group in groups for p in group} == limits


def test_limit_and_cut_answers_are_told(
    engines: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: set[int] = set()
    submit = FakeExits.submit

    def noted(self: FakeExits, request: Request) -> None:
        limits.add(request.max_new_tokens)
        submit(self, request)

    monkeypatch.setattr(FakeExits, "submit", noted)
    heard: list[str] = []
    short = replace(SETTINGS, max_new_tokens=TOKENS)
    found = run(tmp_path / "c.json", short, warn=heard.append)
    assert limits == {TOKENS}
    one = {"max_new_tokens": TOKENS, "cut": 1.0}
    assert found.workloads == {"gsm8k": one, "xsum": one}
    assert f" and answers of at most {TOKENS} tokens, the share" in found.statement
    assert heard == [
        f"workload {name}: 100% of the full model's answers were cut after {TOKENS} tokens"
        for name in ("gsm8k", "xsum")
    ]
    assert open_calibration(tmp_path / "c.json", DEMO) == found
    longer = run(tmp_path / "d.json")
    assert longer.workloads["xsum"] == {"max_new_tokens": 512, "cut": 0.0}
    assert longer.thresholds == found.thresholds
    with pytest.raises(UserError, match=r"max_new_tokens was 512,512 in .*, now it is 12,12"):
        run(tmp_path / "d.json", short)


def test_options_of_the_engine_reach_it_and_stand_in_the_file(
    engines: Opener, tmp_path: Path
) -> None:
    """Of prompts that do not fit, other rows take the place of none."""
    lengths = sorted(len(ids) + 512 for ids in prompts())
    longest = lengths[60]
    given = {"max_model_len": longest, "kv_cache_gib": 0.5}
    found = run(tmp_path / "c.json", replace(SETTINGS, engine=given))
    assert engines.opened[0].options.items() >= given.items()
    assert found.engine == given
    assert sum(found.prompts.values()) == sum(length <= longest for length in lengths) < 80
    assert open_calibration(tmp_path / "c.json", DEMO) == found
    with pytest.raises(UserError, match=r"engine was \{'max_model_.*, now it is \{\}"):
        run(tmp_path / "c.json")


def test_the_engines_own_length_counts_where_none_is_given() -> None:
    own = replace(SETTINGS, backend="own-early-exit")
    assert own.longest(131_072) == LONGEST
    assert own.longest(2048) == 2048
    assert SETTINGS.longest(131_072) == 131_072
    for settings in (own, SETTINGS):
        assert replace(settings, engine={"max_model_len": 8192}).longest(131_072) == 8192


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ({"threshold": 0.5}, "--option: 'threshold' is not to be given: a calibration sets it"),
        ({"max_num_seqs": 4}, "--option: 'max_num_seqs' is not to be given"),
        ({"kv_cache_gb": 4}, "unknown option 'kv_cache_gb': did you mean 'kv_cache_gib'"),
        ({"max_model_len": "long"}, "option 'max_model_len': expected int, got 'long'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    engines: Opener, tmp_path: Path, engine: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", replace(SETTINGS, engine=engine))
    assert told in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_limit_below_one_is_refused(engines: Opener, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--max-new-tokens: expected at least 1, got 0"):
        run(tmp_path / "c.json", replace(SETTINGS, max_new_tokens=0))
    assert engines.opened == []
