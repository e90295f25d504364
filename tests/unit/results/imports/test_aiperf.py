"""AIPerf's folder of artifacts read: a line for each request, and how it was asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Load, Slo
from results.imports.files import read_foreign
from results.imports.foreign import make_record

START = 1_700_000_000_000_000_000


def line(number: int, *, error: dict[str, Any] | None = None, **metrics: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "input_sequence_length": {"value": 30 + number, "unit": "tokens"},
        "time_to_first_token": {"value": 50.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [10.0, 20.0], "unit": "ms"},
        "request_latency": {"value": 80.0, "unit": "ms"},
        "output_sequence_length": {"value": 5, "unit": "tokens"},
    }
    told |= {name: {"value": value, "unit": ""} for name, value in metrics.items()}
    return {
        "metadata": {
            "session_num": number,
            "request_start_ns": START + number * 10**9,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {n: v for n, v in told.items() if v["value"] is not None},
        "error": error,
    }


def written(folder: Path, *lines: dict[str, Any], **phase: Any) -> Path:
    records = "".join(json.dumps(one) + "\n" for one in lines)
    (folder / "profile_export.jsonl").write_text(records)
    asked = {
        "models": {"items": [{"name": "some/model"}]},
        "endpoint": {"type": "completions"},
        "phases": [
            {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 2},
            {
                "name": "profiling",
                "kind": "profiling",
                **(phase or {"type": "concurrency", "concurrency": 4}),
            },
        ],
    }
    (folder / "profile_export_aiperf.json").write_text(json.dumps({"input_config": asked}))
    return folder


def test_lines_become_requests_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    lost = {"code": 499, "type": "RequestCancellationError", "message": "Request\nwas cancelled"}
    warm_up = line(9)
    warm_up["metadata"]["benchmark_phase"] = "warmup"
    folder = written(tmp_path, line(1), warm_up, line(0), line(2, error=lost))
    (found,) = read_foreign(folder)
    assert (found.tool, found.model, found.server) == ("aiperf", "some/model", "completions")
    assert found.load == Load("closed", concurrency=4)
    assert [one.prompt_tokens for one in found.requests] == [30, 31, 32]
    made = make_record(found, "mine", "chat", 0, Slo(), cold=True)
    first, _, third = made.generations
    assert (first.scheduled_ns, first.commit_tokens) == (first.submitted_ns, [1, 2, 2])
    gaps = [round((at - first.submitted_ns) / 1e6, 2) for at in first.commit_ns]
    assert gaps == [50, 60, 80]
    assert (third.finished, third.error) == ("error", "Request was cancelled")
    for name in ("profile_export.jsonl", "profile_export_aiperf.json"):
        assert read_foreign(folder / name) == [found]


def test_an_answer_that_was_not_streamed_is_one_chunk(tmp_path: Path) -> None:
    whole = line(0, time_to_first_token=None, inter_chunk_latency=None)
    (found,) = read_foreign(written(tmp_path, whole))
    (one,) = found.requests
    assert [round(at - one.sent_s, 6) for at in one.chunks_s] == [0.08]


@pytest.mark.parametrize(
    ("phase", "load"),
    [
        ({"type": "poisson", "rate": 4.0}, Load("poisson", rate=4.0)),
        ({"type": "constant", "rate": 4}, Load("constant", rate=4.0)),
        ({"type": "poisson", "rate": 4, "concurrency": 8}, Load("poisson", 8, rate=4.0)),
        ({"type": "fixed_schedule", "concurrency": 8}, Load("trace", 8, trace="fixed_schedule")),
        (
            {"type": "gamma", "rate": 4, "smoothness": 0.5},
            Load("gamma", rate=4.0, burstiness=0.5),
        ),
        ({"type": "fixed_schedule"}, Load("trace", trace="fixed_schedule")),
        ({"type": "user_centric", "rate": 1}, Load("trace", trace="user_centric")),
        ({"type": "constant", "rate_series": {}}, Load("trace", trace="constant")),
        ({"type": "poisson", "rate": 4, "rate_ramp": {}}, Load("poisson", rate=4.0)),
        ({"type": "poisson", "rate": 4, "rate_ramp": 9}, Load("trace", trace="poisson")),
        ({"type": "concurrency"}, Load("closed", concurrency=1)),
    ],
)
def test_loads(phase: dict[str, Any], load: Load, tmp_path: Path) -> None:
    lines = [due(line(n), 3.0) for n in (0, 1)]
    (found,) = read_foreign(written(tmp_path, *lines, **phase))
    assert found.load == load
    made = make_record(found, "mine", "chat", 0, Slo(), cold=True)
    waits = [g.submitted_ns - g.scheduled_ns for g in made.generations]
    assert waits == ([0, 0] if load.kind == "closed" else [3 * 10**9] * 2)


def test_a_limit_that_is_in_no_latency_is_said(tmp_path: Path) -> None:
    """AIPerf stamps when it lets a request go, which is after its wait for a place."""
    words = "; requests wait for a place before it lets them go, which is in no latency"
    for phase, said in (
        ({"type": "poisson", "rate": 4.0, "concurrency": 8}, True),
        ({"type": "poisson", "rate": 4.0, "prefill_concurrency": 8}, True),
        ({"type": "poisson", "rate": 4.0}, False),
        ({"type": "concurrency", "concurrency": 8}, False),
    ):
        (found,) = read_foreign(written(tmp_path, due(line(0), 0.0), **phase))
        assert found.definitions.endswith(words) == said


def due(one: dict[str, Any], before_s: float) -> dict[str, Any]:
    """Let go so long before it was sent."""
    sent_ns = one["metadata"]["request_start_ns"]
    one["metadata"]["credit_issued_ns"] = sent_ns - round(before_s * 1e9)
    return one


def test_what_would_be_read_as_something_else_is_refused(tmp_path: Path) -> None:
    for phase, words in (
        ({"kind": None}, "phases: one is of type None; expected one of concurrency, poisson"),
        ({"kind": "warmup"}, "input_config: has 'models', 'endpoint', 'phases'; expected 'phases'"),
        ({"type": "tidal"}, "phases: one is of type 'tidal'; expected one of concurrency, poisson"),
        ({"type": "fixed_schedule"}, "credit_issued_ns: missing; a phase of type 'fixed_schedule'"),
    ):
        with pytest.raises(UserError, match=words):
            read_foreign(written(tmp_path, line(0), **phase))


def test_each_phase_that_was_measured_is_a_load(tmp_path: Path) -> None:
    lines = [due(line(n), 0.0) for n in range(4)]
    folder = written(tmp_path, *lines, type="poisson", rate=4.0)
    told = json.loads((folder / "profile_export_aiperf.json").read_text())
    again = {"name": "peak", "kind": "profiling", "type": "constant", "rate": 9.0}
    told["input_config"]["phases"].append(again)
    (folder / "profile_export_aiperf.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="phase_name: is None; expected one of profiling, peak"):
        read_foreign(folder)
    for number, one in enumerate(lines):
        one["metadata"]["phase_name"] = "peak" if number == 3 else "profiling"
    (folder / "profile_export.jsonl").write_text("\n".join(map(json.dumps, lines)))
    base, peak = read_foreign(folder)
    assert (base.load, len(base.requests)) == (Load("poisson", rate=4.0), 3)
    assert (peak.load, len(peak.requests)) == (Load("constant", rate=9.0), 1)
    told["input_config"]["phases"][-1]["name"] = "profiling"
    (folder / "profile_export_aiperf.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match=r"input_config\.phases: two have one name"):
        read_foreign(folder)


@pytest.mark.parametrize("rate", ["abc", [1], float("nan"), float("inf"), -3])
def test_what_is_no_rate_is_refused_in_a_line(rate: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_foreign(written(tmp_path, line(0), type="poisson", rate=rate))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_and_names_of_requests_do_not_mix(tmp_path: Path) -> None:
    strange = line(1)
    strange["metadata"]["session_num"] = "x"
    with pytest.raises(UserError, match="holds what no such tool writes"):
        read_foreign(written(tmp_path, line(0), strange))


def test_with_a_rate_latencies_count_from_when_a_request_was_let_go(tmp_path: Path) -> None:
    late = line(0)
    late["metadata"]["credit_issued_ns"] = START - 30_000_000
    for phase, before in (({"type": "poisson", "rate": 4.0}, 0.03), ({}, 0.0)):
        (found,) = read_foreign(written(tmp_path, late, **phase))
        (made,) = make_record(found, "mine", "chat", 0, Slo(), cold=True).generations
        waited = (made.submitted_ns - made.scheduled_ns) / 1e9
        assert waited == pytest.approx(before, abs=1e-6), "a closed load has no such moment"


def test_a_server_that_counts_its_cache_is_believed(tmp_path: Path) -> None:
    cold = [line(n, usage_prompt_cache_read_tokens=0) for n in range(2)]
    (found,) = read_foreign(written(tmp_path, *cold))
    assert make_record(found, "mine", "chat", 0, Slo(), cold=False).validity.valid
    (found,) = read_foreign(written(tmp_path, *cold, line(2, usage_prompt_cache_read_tokens=16)))
    verdict = make_record(found, "mine", "chat", 0, Slo(), cold=True).validity
    assert verdict.reasons[0].startswith("cache-not-cold: 16 prompt tokens")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"output_sequence_length": None}, "record 1: output_sequence_length: None is no number"),
        ({"inter_chunk_latency": [-1.0]}, "record 1: inter_chunk_latency: -1.0 is no time"),
        ({"request_latency": "x"}, "record 1: request_latency: 'x' is no number"),
    ],
)
def test_a_strange_record_is_refused_in_a_line(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        read_foreign(written(tmp_path, line(0, **changed)))


def test_a_folder_without_records_says_what_writes_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing; expected what 'aiperf profile --export-level"):
        read_foreign(tmp_path)
    with pytest.raises(UserError, match="no requests in it"):
        read_foreign(written(tmp_path))
    (tmp_path / "profile_export.jsonl").write_text("{}\n{")
    with pytest.raises(UserError, match=r"profile_export\.jsonl, record 1: request_start_ns"):
        read_foreign(tmp_path)


@pytest.mark.parametrize("summary", ["mine.json", "mine_aiperf.json"])
def test_a_prefix_of_its_own_is_found(summary: str, tmp_path: Path) -> None:
    folder = written(tmp_path, line(0), line(1))
    (expected,) = read_foreign(folder)
    (folder / "profile_export.jsonl").rename(folder / "mine.jsonl")
    (folder / "profile_export_aiperf.json").rename(folder / summary)
    for name in ("mine.jsonl", summary):
        assert read_foreign(folder / name) == [expected]
    with pytest.raises(UserError, match=r"of --profile-export-prefix X the file X\.jsonl"):
        read_foreign(folder)


def test_how_it_was_asked_is_not_guessed(tmp_path: Path) -> None:
    folder = written(tmp_path, line(0), line(1))
    (folder / "profile_export_aiperf.json").unlink()
    words = "expected AIPerf's summary, profile_export_aiperf.json or profile_export.json"
    with pytest.raises(UserError, match=f"nothing beside it says how it was asked; {words}"):
        read_foreign(folder)


def test_another_versions_words_and_units_are_not_guessed(tmp_path: Path) -> None:
    folder = written(tmp_path, line(0))
    told = json.loads((folder / "profile_export_aiperf.json").read_text())
    del told["input_config"]["phases"]
    told["input_config"]["loadgen"] = {"request_rate": 5.0, "request_rate_mode": "poisson"}
    (folder / "profile_export_aiperf.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="'loadgen'; expected 'phases' with one of kind"):
        read_foreign(folder)
    odd = line(0)
    odd["metrics"]["time_to_first_token"] = {"value": 0.05, "unit": "sec"}
    with pytest.raises(UserError, match="time_to_first_token: is in 'sec'; expected ms"):
        read_foreign(written(tmp_path, odd))
