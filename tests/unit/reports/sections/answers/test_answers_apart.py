"""Answers and scores of several machines, lengths or temperatures are taken each by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import results
from harness.core.names import QUALITY
from harness.core.nouns import Load, Sampling, TrialRecord, Workload
from reports.cells import Overview, overview
from reports.collect import Samples, collect
from reports.page import render
from reports.sections.answers import quality, same_text
from reports.words.quality import qualities
from reports.words.ranking.by_size import by_model
from results.compare.quality import only_quality, without_quality
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.report_pages import section
from tests.support.results.stored_runs import run_of

PROMPTS = 400
SHORT, LONG = "max new tokens 16", "max new tokens 256"
GREEDY, DRAWN = "sampling temperature 0.0", "sampling temperature 1.0"


def answered(
    name: str,
    ids: Sequence[int],
    right: int = 0,
    *,
    prompts: Sequence[str] = ("r0", "r1"),
    telemetry: Mapping[str, float] | None = None,
    **asked: Any,
) -> TrialRecord:
    """The same answer to each prompt, which is right for the first ones."""
    own = trial(name, workload=Workload("gsm8k", checksum="s"), requests=len(prompts), **asked)
    ends = [10.0 * place for place, _ in enumerate(ids, 1)]
    answers = [generation(one, ends, ids=ids, telemetry=telemetry) for one in prompts]
    scores = {one: {"exact_match": float(n < right)} for n, one in enumerate(prompts)}
    return record(own, answers, scores=scores, lossless=False)


def stored(folder: Path, *found: TrialRecord) -> results.Run:
    told = {one.trial.backend: dict(one.trial.options) for one in found}
    backends = [{"name": name, "options": options} for name, options in told.items()]
    return run_of(folder, *found, backends=backends)


def page(run: results.Run) -> tuple[Overview, Samples]:
    timed = without_quality(run)
    seen = overview(timed)
    return seen, collect(timed, seen, only_quality(run))


def lengths(lost: int = 24, **changes: Any) -> list[TrialRecord]:
    """Of two lengths: with the longer one the early exit loses six of a hundred answers."""
    asked: dict[str, Any] = {"prompts": [f"r{n}" for n in range(PROMPTS)], **changes}
    return [
        answered(name, [1, 2], PROMPTS - fewer, max_new_tokens=most, **asked)
        for name, most, fewer in (
            *(("vllm", 16, 0), ("fast", 16, 0)),
            *(("vllm", 256, 0), ("fast", 256, lost)),
        )
    ]


def test_each_length_is_judged_by_its_own_answers(tmp_path: Path) -> None:
    """A loss was halved, and one part's answers were called worse for the other's."""
    seen, samples = page(stored(tmp_path, *lengths()))
    told = {part: qualities(own, seen.variants, samples)[1].words for part, own in by_model(seen)}
    assert told == {
        SHORT: "as good as the reference's within 0.02 of the score",
        LONG: "worse than the reference's: gsm8k (bundled) exact match 1.00 → 0.940",
    }
    made = quality.section(seen, samples)
    assert made.finding == (
        "The greatest loss beside the reference: gsm8k (bundled) exact match 1.00 → 0.940 "
        f"({LONG}) with fast."
    )
    assert sorted(panel.caption for panel in made.groups[0].panels) == [
        f"gsm8k (bundled), {part}: exact match" for part in (SHORT, LONG)
    ]


def test_lengths_stand_apart_whatever_their_loads(tmp_path: Path) -> None:
    short, long = lengths()[:2], lengths()[2:]
    one = Load("closed", concurrency=1)
    alone = [
        replace(r, key=f"one{n}", trial=replace(r.trial, load=one)) for n, r in enumerate(short)
    ]
    seen, samples = page(stored(tmp_path, *alone, *long))
    assert {cell.apart for cell in seen.cells} == {SHORT, LONG}
    made = quality.section(seen, samples)
    assert f"1.00 → 0.940 ({LONG}) with fast" in made.finding


def test_a_pair_of_backend_and_task_is_one_whatever_was_asked_of_it(tmp_path: Path) -> None:
    made = quality.section(*page(stored(tmp_path, *lengths(lost=0))))
    assert made.finding == "No score of 1 pair of backend and task is below the reference's."


def test_a_reference_that_is_always_wrong_shows_no_score_that_is_kept(tmp_path: Path) -> None:
    prompts = [f"r{n}" for n in range(PROMPTS)]
    both = (answered(name, [1, 2], prompts=prompts) for name in ("vllm", "fast"))
    made = quality.section(*page(stored(tmp_path, *both)))
    assert made.finding == "Mean scores of 0."


def test_prompts_for_quality_alone_join_those_that_were_asked_alike(tmp_path: Path) -> None:
    more = answered(
        "fast", [1, 2], 1, prompts=["q0", "q1", "q2"], max_new_tokens=256,
        load=Load(QUALITY, concurrency=8),
    )  # fmt: skip
    _, samples = page(stored(tmp_path, *lengths(), more))
    counts = {key[:3]: len(means) for key, means in samples.scores.items()}
    assert counts == {
        (0, "gsm8k", SHORT): PROMPTS,
        (1, "gsm8k", SHORT): PROMPTS,
        (0, "gsm8k", LONG): PROMPTS,
        (1, "gsm8k", LONG): PROMPTS + 3,
    }
    assert samples.more_prompts == {"gsm8k": 3}


def blocks(run: results.Run) -> dict[str, str]:
    """What the list of answers says of each part of it."""
    text = section(render(run), "requests")
    return dict(re.findall(r'<h3>([^<]*) <span class="muted">([^<]*)</span></h3>', text))


def test_drawn_answers_are_no_other_answers_than_the_greedy_ones(tmp_path: Path) -> None:
    found = [
        answered(name, ids, sampling=Sampling(temperature=temperature))
        for name in ("vllm", "fast")
        for temperature, ids in ((0.0, [1, 2]), (1.0, [3, 4]))
    ]
    assert blocks(stored(tmp_path, *found)) == {
        f"gsm8k, {GREEDY}": "2 requests, 0 with differing answers",
        f"gsm8k, {DRAWN}": "2 requests, 0 with differing answers",
    }


def test_requests_that_nobody_answered_are_counted_above_the_answers(tmp_path: Path) -> None:
    def lost(one: TrialRecord) -> TrialRecord:
        first, *rest = one.generations
        return replace(one, generations=[replace(first, finished="error"), *rest])

    found = [lost(answered(name, [1, 2])) for name in ("vllm", "fast")]
    assert set(blocks(stored(tmp_path, *found)).values()) == {
        "2 requests, 0 with differing answers, 1 without an answer"
    }


def test_a_margin_is_of_the_part_that_recorded_it(tmp_path: Path) -> None:
    told: dict[str, Any] = {"options": {"margins": True}, "telemetry": {"top2_margin@1": 0.5}}
    plain: dict[str, Any] = {"options": {"margins": True}}
    run = stored(
        tmp_path,
        answered("vllm", [1, 2], max_new_tokens=16, **told),
        answered("vllm", [1, 2], max_new_tokens=256, **plain),
        *(answered("fast", [1, 3], max_new_tokens=most) for most in (16, 256)),
    )
    assert set(blocks(run).values()) == {"2 requests, 2 with differing answers"}
    ahead = "where the reference&#39;s best token was 0.500 ahead"
    parts = section(render(run), "requests").split("<h3>")
    assert sorted(part.count(ahead) for part in parts) == [0, 0, 2]


def test_each_length_has_a_verdict_on_its_text(tmp_path: Path) -> None:
    """Two were pooled, and the long answers' forks stood beside the short ones' shares."""
    found = [
        answered(name, ids, max_new_tokens=most, repeat=repeat)
        for repeat in (0, 1)
        for name, most, ids in (
            *(("vllm", 16, [1, 2]), ("fast", 16, [1, 2])),
            *(("vllm", 256, [1, 2]), ("fast", 256, [1, 3])),
        )
    ]
    run = stored(tmp_path, *found)
    seen, samples = page(run)
    made = same_text.section(seen, samples)
    assert made is not None
    assert made.finding == (
        f"Lossless: fast, {SHORT} (100% equal); lossy: fast, {LONG} (0% equal)."
    )
    text = section(render(run), "same_text")
    assert [text.count(part) for part in (f">{SHORT}<", f">{LONG}<")] == [2, 2]
    ids = re.findall(r' id="(same_text[^"]+)"', text)
    assert len(set(ids)) == len(ids)
    verdicts = {c.apart: c.texts["consistency_ratio"].verdict for c in seen.cells if c.texts}
    assert verdicts == {SHORT: "lossless", LONG: "lossy"}
