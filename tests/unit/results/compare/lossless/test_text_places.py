"""Texts are judged apart where numbers are rounded apart, or other answers were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import Load, Sampling, TrialRecord, Workload
from results.compare.lossless import verdicts
from results.compare.lossless.verdicts import BackendText
from results.rows import text_verdicts
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of


@pytest.mark.parametrize("apart", ["dtype", "machine"])
def test_dtypes_and_machines_have_verdicts_of_their_own(apart: str) -> None:
    """What one rounds does not excuse the other, nor condemn it."""

    def told(own: bool, equal: int, place: str) -> dict[str, Any]:
        differing = {f"r{n}": [0, 1] for n in range(40 - equal)}
        evidence = {
            "pairs": 40, "equal": equal, "requests": 40, "differing": differing, "forks": [],
            "asked": {f"r{n}": 1 for n in range(40)}, "draws": None,
        }  # fmt: skip
        name = "vllm" if own else "fast"
        return {
            "variant": name, "backend": name, "options": {}, "label": None, "model": "demo",
            "dtype": "bfloat16", "machine": "a", "against": "vllm", "is_self": own,
            "checksum": "c", "other_draws": False, "lossless": True, "evidence": evidence,
            "setting": {}, "same_arithmetic": False, "group": place, apart: place,
        }  # fmt: skip

    places = ("float32", "float16") if apart == "dtype" else ("a", "b")
    cells = [told(True, 37, place) for place in places]
    cells += [told(False, equal, place) for equal, place in zip((37, 4), places, strict=True)]
    found = [one for one in verdicts.text_verdicts(cells) if not one.is_reference]
    assert {getattr(one, apart): one.verdict for one in found} == dict(
        zip(places, ("within noise", "lossy"), strict=True)
    )


SHORT: dict[str, Any] = {"max_new_tokens": 8}
LONG: dict[str, Any] = {"max_new_tokens": 16}
NATIVE = {"kernels": "native"}


def ran(backend: str, differing: int = 0, repeat: int = 0, **asked: Any) -> TrialRecord:
    """Answers to forty prompts, of which the first ones are others than the plain ones."""
    answers = [
        generation(f"r{n}", [1, 2, 3], ids=[1, 2, 9 if n < differing else 3]) for n in range(40)
    ]
    own = NATIVE if backend == "fast" else {}
    return record(trial(backend, options=own, requests=40, repeat=repeat, **asked), answers)


def judged(folder: Path, records: Sequence[TrialRecord]) -> list[BackendText]:
    backends = [{"name": "vllm"}, {"name": "fast", "options": NATIVE}]
    found = text_verdicts(run_of(folder, *records, backends=backends))
    return [one for one in found if not one.is_reference]


@pytest.mark.parametrize("turned", [False, True])
def test_lengths_have_verdicts_of_their_own(tmp_path: Path, turned: bool) -> None:
    """The short answers' equal pairs and noise floor excuse nothing of the long ones, whatever the
    load that they were asked under."""
    one = Load("closed", concurrency=1)
    records = [
        *(ran("vllm", 30 * repeat, repeat, load=one, **SHORT) for repeat in (0, 1)),
        ran("fast", load=one, **SHORT),
        *(ran("vllm", 1 * repeat, repeat, **LONG) for repeat in (0, 1)),
        ran("fast", 20, **LONG),
    ]
    found = judged(tmp_path, records[:: -1 if turned else 1])
    assert {str(one.setting): (one.verdict, one.equal, one.noise_floor) for one in found} == {
        str(SHORT): ("lossless", 40, 0.25),
        str(LONG): ("lossy", 20, 39 / 40),
    }


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("workload", ["gsm8k", "xsum"])
def test_drawn_text_hides_no_greedy_one(tmp_path: Path, turned: bool, workload: str) -> None:
    drawn: dict[str, Any] = {
        "sampling": Sampling(temperature=1.0),
        "workload": Workload(workload, checksum="c0ffee"),
    }
    records = [
        *(ran("vllm", 0, repeat, **drawn) for repeat in (0, 1)),
        ran("fast", 0, **drawn),
        *(ran("vllm", 0, repeat) for repeat in (0, 1)),
        ran("fast", 20),
    ]
    found = judged(tmp_path, records[:: -1 if turned else 1])
    told = {one.setting["sampling.temperature"]: (one.verdict, one.pairs) for one in found}
    assert told == {0.0: ("lossy", 40), 1.0: ("unknown", 0)}


def test_workloads_may_have_lengths_of_their_own(tmp_path: Path) -> None:
    """They are one verdict, as are prompts of other seeds; another machine's are another."""
    elsewhere = {"workload": Workload("xsum", checksum="x"), "seed": 1, **LONG}
    both = [record for name in ("vllm", "fast") for record in (ran(name), ran(name, **elsewhere))]
    (one,) = judged(tmp_path / "one", both)
    assert (one.pairs, one.setting) == (80, {})
    again = [
        replace(record, key=f"{record.key}2", environment={"fingerprint": "f00d"})
        for record in both
    ]
    found = judged(tmp_path / "two", [*both, *again])
    assert [(two.pairs, dict(two.setting)) for two in found] == [
        (80, {"machine": name}) for name in ("None", "f00d")
    ]
