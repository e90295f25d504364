"""Lossless, within the noise or lossy: what each verdict rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.nouns import Load, Model, Sampling, TrialRecord, Workload
from results.compare.lossless.verdicts import BackendText
from results.rows import text_verdicts
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

SAME = (1, 2, 3, 4)
REQUESTS = 20
Changed = Mapping[int, tuple[int, float | None]]
"""Request -> token from which its answer is another, and the margin there."""


def ran(backend: str, changed: Changed | None = None, repeat: int = 0, **more: Any) -> TrialRecord:
    """Answers of four tokens, of which some change; the margins are those of the plain answer. With
    `rows` that many prompts are asked again and again."""
    told = {
        i: {f"top2_margin@{token}": margin}
        for i, (token, margin) in (more.pop("margins", None) or {}).items()
    }
    generations, rows = [], more.pop("rows", REQUESTS)
    for i in range(REQUESTS):
        ids, turn = list(SAME), i // rows + 1
        if i in (changed or {}):
            place = (changed or {})[i][0]
            ids[place:] = [token + 50 for token in ids[place:]]
        generations.append(
            generation(
                f"r{i % rows}" + (f"#{turn}" if turn > 1 else ""),
                [10 * n for n in range(4)],
                ids=ids,
                telemetry=told.get(i),
            )
        )
    options = {"margins": True} if told else more.pop("options", {})
    lossless = more.pop("lossless", True)
    of = trial(backend, options=options, repeat=repeat, requests=REQUESTS, **more)
    return record(of, generations, lossless=lossless)


def judged(
    folder: Path, *records: TrialRecord, backend: str = "fast", options: Any = None
) -> BackendText:
    """`options`: the reference's."""
    choices: list[Any] = [
        {"name": name, "options": options or {}} for name in ("vllm", "fast", "autoregressive")
    ]
    found = text_verdicts(run_of(folder, *records, backends=choices))
    (one,) = [text for text in found if text.backend == backend and not text.is_reference]
    return one


def test_equal_answers_are_lossless_with_their_interval(tmp_path: Path) -> None:
    one = judged(tmp_path, *(ran(name, repeat=r) for name in ("vllm", "fast") for r in (0, 1)))
    assert (one.verdict, one.consistency, one.pairs, one.requests) == ("lossless", 1.0, 40, 20)
    assert one.noise_floor == 1.0
    assert one.fork is None
    # Wilson's interval of 20 of 20: repeats ask the same again and narrow nothing
    assert one.low == pytest.approx(0.8389, abs=1e-4)
    assert one.high == 1.0


FEW = [(2, 1, "unknown"), (3, 1, "lossy"), (3, 2, "lossy"), (1, 4, "unknown"), (2, 4, "lossy")]
PLAIN = [("autoregressive", 2, "lossy"), ("autoregressive", 1, "unknown"), ("vllm", 2, "unknown")]


@pytest.mark.parametrize(("count", "repeats", "verdict"), FEW)
def test_few_changes_are_no_evidence_where_the_reference_did_not_differ(
    tmp_path: Path, count: int, repeats: int, verdict: str
) -> None:
    """Its few pairs may all be equal by luck, as those of an equal backend might have been."""
    changed = dict.fromkeys(range(count), (2, None))
    reference = [ran("vllm", repeat=repeat) for repeat in range(max(repeats, 2))]
    others = [ran("fast", changed, repeat=repeat) for repeat in range(repeats)]
    one = judged(tmp_path, *reference, *others)
    pairs = 20 * repeats
    assert (one.verdict, one.equal, one.pairs) == (verdict, pairs - count * repeats, pairs)
    assert one.fork == {"request": "r0", "token": 2, "margin": None}
    told = f"{count * repeats} of {pairs} answers differ, none of the reference's own (p = "
    assert one.why.startswith(f"{told}{(1 / 9 if repeats > 2 else 1 / 3) ** count:.2g})")


@pytest.mark.parametrize(("by", "threads", "verdict"), PLAIN)
def test_plain_decoding_s_kernels_give_its_text(
    tmp_path: Path, by: str, threads: int, verdict: str
) -> None:
    plain = {"kernels": "native", "threads": 2}
    one = judged(
        tmp_path,
        *(ran(by, repeat=r, options=plain) for r in (0, 1)),
        ran("fast", {7: (2, None)}, options={**plain, "threads": threads}),
        options=plain,
    )
    assert (one.verdict, one.against) == (verdict, by)


def test_ties_are_ties_however_many_where_the_reference_did_not_differ(tmp_path: Path) -> None:
    ties = dict.fromkeys(range(8), (2, 1e-5))
    reference = [ran("vllm"), ran("vllm", repeat=1), ran("vllm", margins=ties)]
    one = judged(tmp_path, *reference, ran("fast", ties))
    assert (one.verdict, one.equal) == ("within noise", 12)


@pytest.mark.parametrize(("margin", "verdict"), [(0.01, "within noise"), (3.0, "lossy")])
def test_a_margin_tells_a_tie_from_a_change(tmp_path: Path, margin: float, verdict: str) -> None:
    """Recorded by another variant of the reference, which gave the same tokens before."""
    changed = {7: (2, margin)}
    bfloat16: dict[str, Any] = {"model": Model("demo", dtype="bfloat16")}
    one = judged(
        tmp_path,
        *(ran("vllm", repeat=r, **bfloat16) for r in (0, 1)),
        ran("vllm", margins=changed, **bfloat16),
        ran("fast", changed, **bfloat16),
    )
    assert (one.verdict, one.surest) == (verdict, margin)
    assert one.fork is not None
    assert one.fork["margin"] == margin


def test_no_more_than_the_reference_from_itself_is_noise(tmp_path: Path) -> None:
    noisy = dict.fromkeys(range(6), (1, None))
    reference = [ran("vllm"), ran("vllm", noisy, repeat=1)]
    few = judged(tmp_path / "few", *reference, ran("fast", dict.fromkeys(range(4, 10), (3, None))))
    assert few.noise_floor == pytest.approx(14 / 20)
    assert few.verdict == "within noise"
    assert few.why.startswith("no evidence that it differs more than the reference from itself (p")
    many = judged(
        tmp_path / "many", *reference, ran("fast", dict.fromkeys(range(4, 18), (3, None)))
    )
    assert many.verdict == "lossy"
    assert "more than the reference from itself" in many.why


@pytest.mark.parametrize(("prompts", "verdict"), [(4, "unknown"), (5, "lossy")])
def test_prompts_that_cannot_find_a_backend_without_an_equal_answer_find_no_noise(
    tmp_path: Path, prompts: int, verdict: str
) -> None:
    """The reference leaves itself in one of the asks of one prompt, of which there are too few for
    a sign test at 5%: 2**-4 is more, 2**-5 less."""
    once, never = {0: (1, None)}, dict.fromkeys(range(REQUESTS), (0, None))
    reference = [ran("vllm", rows=prompts), ran("vllm", once, repeat=1, rows=prompts)]
    one = judged(tmp_path, *reference, ran("fast", never, rows=prompts))
    assert (one.verdict, one.equal, one.requests) == (verdict, 0, prompts)


def test_margins_tell_noise_where_prompts_are_too_few(tmp_path: Path) -> None:
    once, tie = {0: (1, None)}, {2: (1, 1e-5)}
    told = ran("vllm", rows=4, margins=tie)
    reference = [ran("vllm", rows=4), ran("vllm", once, repeat=1, rows=4)]
    one = judged(tmp_path, *reference, told, ran("fast", tie, rows=4))
    assert (one.verdict, one.surest) == ("within noise", 1e-5)
    assert one.why.startswith("only where two tokens were within")


def test_noise_needs_an_interval_that_reaches_the_floor(tmp_path: Path) -> None:
    """Four of twenty differ, p = 0.19, and Wilson's interval ends at 0.919, the floor is 0.95."""
    reference = [ran("vllm"), ran("vllm", {0: (1, None)}, repeat=1)]
    one = judged(tmp_path, *reference, ran("fast", dict.fromkeys(range(1, 5), (1, None))))
    assert (one.verdict, one.noise_floor, one.equal) == ("unknown", 0.95, 16)
    assert "fewer equal answers than the noise floor" in one.why
    assert "(p = 0.19)" in one.why


NOISY = dict.fromkeys(range(6), (1, None))
"""What the reference's second repeat changes."""


def test_prompts_that_the_reference_answered_once_are_no_evidence(tmp_path: Path) -> None:
    """It may differ from itself there as often."""
    once: dict[str, Any] = {
        "workload": Workload("gsm8k", checksum="more"),
        "load": Load("quality", concurrency=8),
    }
    one = judged(
        tmp_path,
        *(ran("vllm"), ran("vllm", NOISY, repeat=1)),
        ran("fast", dict.fromkeys(range(4, 10), (3, None))),
        *(ran("vllm", **once), ran("fast", dict.fromkeys(range(10), (1, None)), **once)),
    )
    assert (one.verdict, one.equal, one.pairs) == ("within noise", 24, 40)


def test_the_reference_s_noise_on_what_a_backend_was_not_asked_hides_nothing(
    tmp_path: Path,
) -> None:
    elsewhere: dict[str, Any] = {"workload": Workload("xsum", checksum="other")}
    one = judged(
        tmp_path,
        *(ran("vllm"), ran("vllm", NOISY, repeat=1)),
        ran("fast", dict.fromkeys(range(4, 18), (3, None))),
        ran("vllm", **elsewhere),
        ran("vllm", dict.fromkeys(range(15), (1, None)), repeat=1, **elsewhere),
    )
    assert (one.verdict, one.noise_floor) == ("lossy", 14 / 20)


def test_a_prompt_that_is_asked_again_is_one_piece_of_evidence(tmp_path: Path) -> None:
    """One of two forks in all ten asks, the reference leaves itself in one ask of the other."""
    always, once = dict.fromkeys(range(0, REQUESTS, 2), (1, None)), {1: (1, None)}
    reference = [ran("vllm", rows=2), ran("vllm", once, repeat=1, rows=2)]
    one = judged(tmp_path, *reference, *(ran("fast", always, repeat=r, rows=2) for r in (0, 1)))
    assert (one.verdict, one.pairs, one.requests) == ("unknown", 40, 2)
    assert "answers alike again (2)" in one.why
    # Wilson's interval of 19 of 40 pairs, worth two
    assert one.consistency == 19 / 40
    assert one.low == pytest.approx(0.0861, abs=1e-4)
    assert one.fork == {"request": "r0", "token": 1, "margin": None}


def test_what_is_asked_again_is_held_against_the_same_ask(tmp_path: Path) -> None:
    """Which may have a seed of its own: the asks of a prompt need not be alike."""
    drawn = {i: (i % 3, None) for i in range(REQUESTS)}
    one = judged(tmp_path, *(ran(name, drawn, rows=2) for name in ("vllm", "fast")))
    assert (one.verdict, one.equal, one.requests) == ("lossless", REQUESTS, 2)
    other = judged(tmp_path / "other", ran("vllm", drawn, rows=2), ran("fast", rows=2))
    assert other.fork is not None
    assert (other.fork["request"], other.fork["token"]) == ("r0", 0)
    assert other.equal == 0


def test_where_nothing_tells_the_noise_it_is_unknown(tmp_path: Path) -> None:
    one = judged(tmp_path, ran("vllm"), ran("fast", {7: (2, None)}))
    assert (one.verdict, one.noise_floor) == ("unknown", None)
    assert "run once, and no margins" in one.why
    one = judged(tmp_path / "lossy", ran("vllm"), ran("fast", {7: (2, None)}, lossless=False))
    assert (one.verdict, one.why) == ("lossy", "is none that promises it, and gives another text")


def test_cells_add_up_and_models_do_not(tmp_path: Path) -> None:
    other = Model("other")
    records = [
        ran("vllm"),
        ran("vllm", repeat=1),
        ran("fast"),
        ran("fast", {1: (1, None)}, repeat=1),
        *(ran(name, model=other) for name in ("vllm", "fast")),
    ]
    choices: list[Any] = [{"name": name, "options": {}} for name in ("vllm", "fast")]
    run = run_of(tmp_path, *records, backends=choices)
    found = text_verdicts(run)
    assert run.texts["verdict"].tolist() == [one.verdict for one in found]
    of = {(one.backend, one.model): one for one in found}
    assert (of["fast", "demo"].equal, of["fast", "demo"].pairs) == (39, 40)
    assert of["fast", "demo"].requests == 20
    assert of["fast", "other"].verdict == "lossless"
    assert of["vllm", "demo"].is_reference


def drawn_run(
    folder: Path,
    shares: Sequence[float],
    *,
    reference: Sequence[float] = (0.6, 0.3, 0.1),
    again: int = 40,
) -> list[BackendText]:
    """Two prompts asked again and again of two engines that draw otherwise."""
    rng, records = np.random.default_rng(0), []
    for backend, own in (("vllm", reference), ("fast", shares)):
        generations = [
            generation(
                name if not n else f"{name}#{n + 1}",
                [0, 1],
                ids=rng.choice(3, 2, p=own).tolist(),
            )
            for n in range(again)
            for name in ("a", "b")
        ]
        options = {"kernels": "native"} if backend == "fast" else {}
        of = trial(backend, options=options, requests=2 * again, sampling=Sampling(temperature=1.0))
        records.append(record(of, generations))
    choices = [{"name": "vllm", "options": {}}, {"name": "fast", "options": {"kernels": "native"}}]
    found = text_verdicts(run_of(folder, *records, backends=choices))
    return [one for one in found if one.backend == "fast"]


def test_sampled_text_is_compared_as_a_distribution(tmp_path: Path) -> None:
    (same,) = drawn_run(tmp_path / "same", (0.6, 0.3, 0.1))
    assert same.verdict == "within noise"
    assert (same.pairs, same.low) == (0, None), "texts of other draws say nothing"
    assert same.p_value is not None
    assert same.p_value > 0.05
    (other,) = drawn_run(tmp_path / "other", (0.3, 0.6, 0.1))
    assert other.verdict == "lossy"
    assert "another distribution" in other.why
    assert other.distance == pytest.approx(0.3, abs=0.12)
    (few,) = drawn_run(tmp_path / "few", (0.3, 0.6, 0.1), again=3)
    assert (few.verdict, few.p_value) == ("unknown", None)
    (alike,) = drawn_run(tmp_path / "alike", (0, 0, 1), reference=(0, 0, 1))
    assert (alike.verdict, alike.p_value, alike.distance) == ("within noise", 1.0, 0.0)
    assert alike.why.startswith("every answer to a prompt is the same on both sides (160 draws)")
