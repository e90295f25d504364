"""GuideLLM's files read: stamps, when requests were due, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Load, Slo
from results.imports.files import read_foreign
from results.imports.foreign import make_record
from results.metrics import latency
from results.metrics.arrays import from_record


def answered(start: float, **changes: Any) -> dict[str, Any]:
    """Sent 20 ms after it was due, first token after 50 ms, then three chunks 10 ms apart."""
    timings = {
        "targeted_start": start - 0.02,
        "request_start": start,
        "first_token_iteration": start + 0.05,
        "last_token_iteration": start + 0.08,
        "token_iterations": 4,
        "request_end": start + 0.081,
        "resolve_end": start + 0.082,
    }
    return {
        "request_id": f"r{start}",
        "output": "some text",
        "info": {"status": "completed", "timings": timings},
        "input_metrics": {"text_tokens": 30, "cached_tokens": 0},
        "prompt_tokens": 30,
        "output_tokens": 7,
        **changes,
    }


def written(folder: Path, *more: dict[str, Any], **changes: Any) -> Path:
    one: dict[str, Any] = {
        "config": {
            "strategy": {"kind": "poisson", "rate": 4.0},
            "backend": {"kind": "openai_http", "model": "some/model"},
        },
        "metrics": {"request_totals": {"successful": 2, "errored": 1, "incomplete": 1}},
        "requests": {
            # in the order in which they ended
            "successful": [answered(101.0), answered(100.0)],
            "errored": [
                {
                    "prompt_tokens": 12,
                    "info": {"error": "Connection\nlost", "timings": {"request_start": 102.0}},
                }
            ],
            "incomplete": [{"info": {"timings": {}}}],
        },
        **changes,
    }
    path = folder / "guide.json"
    path.write_text(json.dumps({"benchmarks": [one, *more]}))
    return path


def test_stamps_count_from_when_a_request_was_due(tmp_path: Path) -> None:
    (found,) = read_foreign(written(tmp_path))
    assert (found.tool, found.server, found.model) == ("guidellm", "openai_http", "some/model")
    assert found.load == Load("poisson", rate=4.0)
    assert found.started_at == "1970-01-01T00:01:40+00:00"
    made = make_record(found, "mine", "chat", 0, Slo(), cold=False)
    first, _, third = made.generations
    assert (first.scheduled_ns, first.submitted_ns) == (99_980_000_000, 100_000_000_000)
    assert first.commit_ns == [100_050_000_000 + 10_000_000 * n for n in range(4)]
    assert first.commit_tokens == [1, 2, 2, 2]
    assert (third.finished, third.error) == ("error", "Connection lost")
    # the server counts what came from its cache: nothing is unknown, nothing was warm
    assert [r.partition(":")[0] for r in made.validity.reasons] == [
        "failures",
        "client-late",
        "noise-not-checked",
        "imported",
    ]
    requests = from_record(made)
    assert latency.ttft_s(requests).tolist() == pytest.approx([0.07, 0.07])
    # GuideLLM's inter-token latency, of the tokens behind the first
    assert latency.tpot_s(requests).tolist() == pytest.approx([0.03 / 6] * 2)


def test_a_client_that_sends_late_is_what_was_measured(tmp_path: Path) -> None:
    """As our own would be judged, and not for waiting for an answer that a request continues."""
    for late_s, held_s, words in (
        (0.004, None, None),
        (0.02, None, "client-late: guidellm itself sent up to 20.0 ms late (p99; limit 5 ms)"),
        (0.02, 99.998, None),
    ):
        one = answered(100.0)
        one["info"]["timings"] |= {"targeted_start": 100 - late_s, "predecessor_completed": held_s}
        requests = {"successful": [one, one]}
        (found,) = read_foreign(written(tmp_path, requests=requests, metrics={}))
        made = make_record(found, "mine", "chat", 0, Slo(), cold=True)
        assert made.validity.valid == (words is None)
        assert words in (None, made.validity.reasons[0])
        lag_s = made.generations[0].client_lag_ns * 1e-9
        assert lag_s == pytest.approx(0.002 if held_s else late_s, abs=1e-6)


def test_the_wait_for_a_place_is_no_lateness_of_the_clients(tmp_path: Path) -> None:
    for most, late in ((2, False), (10240, True)):
        asked = {"strategy": {"kind": "poisson", "rate": 4.0, "max_concurrency": most}}
        requests = {"successful": [answered(100.0 + number) for number in range(3)]}
        (found,) = read_foreign(written(tmp_path, config=asked, requests=requests, metrics={}))
        made = make_record(found, "mine", "chat", 0, Slo(), cold=True)
        assert made.validity.valid is not late
        assert latency.ttft_s(from_record(made)).tolist() == pytest.approx([0.07] * 3)


def test_requests_that_were_cut_off_did_not_end(tmp_path: Path) -> None:
    """Left out, only the faster ones of the last seconds would count. What never left is none."""
    whole = {"successful": [answered(100.0 + number) for number in range(3)]}
    timings = {"targeted_start": 103.0, "resolve_start": 103.001, "resolve_end": 104.0}
    late = {"prompt_tokens": None, "info": {"timings": timings}}
    waiting = {"info": {"timings": {"targeted_start": 105.0, "resolve_end": 104.0}}}
    for cut, words in (([waiting], None), ([late, waiting], "failures: 1 of 4 requests did not")):
        requests = {**whole, "incomplete": cut}
        asked = {"strategy": {"kind": "poisson", "rate": 4.0, "max_concurrency": 2}}
        (found,) = read_foreign(written(tmp_path, config=asked, requests=requests, metrics={}))
        made = make_record(found, "mine", "chat", 0, Slo(ttft_ms=1e3), cold=True)
        assert made.validity.valid is (words is None)
        assert made.validity.reasons[0].startswith(words or "noise-not-checked: ")
        ends = [(g.finished, g.error) for g in made.generations]
        assert ends == [("stop", None)] * 3 + [(None, None)] * (words is not None)
        met = latency.meets_slo(from_record(made), made.trial.slo).tolist()
        assert met == [True] * 3 + [False] * (words is not None)


def test_a_warm_up_and_a_cool_down_are_left_out(tmp_path: Path) -> None:
    """Its totals count what was in flight at some moment between them."""
    times = {"measure_start_time": 100.5, "measure_end_time": 102.5}
    late = {"info": {"timings": {"request_start": 103.9, "resolve_end": 104.0}}}
    requests = {
        "successful": [answered(100.0), answered(100.45), answered(101.0), answered(102.5)],
        "errored": [{"info": {"timings": {"request_start": 103.0, "resolve_end": 103.1}}}],
        "incomplete": [late],
    }
    totals = {"request_totals": {"successful": 3, "errored": 0, "incomplete": 0}}
    path = written(tmp_path, requests=requests, metrics=totals, scheduler_metrics=times)
    (found,) = read_foreign(path)
    assert [one.sent_s for one in found.requests] == [100.45, 101.0, 102.5]
    assert found.definitions.endswith("; 3 requests outside its measured time are left out")
    made = make_record(found, "mine", "chat", 0, Slo(), cold=True)
    assert not any(reason.startswith("failures") for reason in made.validity.reasons)
    path = written(tmp_path, scheduler_metrics={**times, "measure_start_time": "x"})
    with pytest.raises(UserError, match="scheduler_metrics: 'x' is no number"):
        read_foreign(path)


def test_a_warm_cache_is_no_cold_run(tmp_path: Path) -> None:
    warm = answered(100.0, input_metrics={"text_tokens": 30, "cached_tokens": 16})
    requests = {"successful": [warm, answered(101.0)]}
    (found,) = read_foreign(written(tmp_path, requests=requests, metrics={}))
    made = make_record(found, "mine", "chat", 0, Slo(), cold=True)
    assert not made.validity.valid
    assert (
        made.validity.reasons[1] == "cache-not-cold: 16 prompt tokens came from the server's cache"
    )


def test_each_benchmark_of_a_sweep_is_a_load(tmp_path: Path) -> None:
    more = json.loads(written(tmp_path).read_text())["benchmarks"][0]
    more["config"]["strategy"] = {"kind": "concurrent", "streams": 8}
    loads = [found.load for found in read_foreign(written(tmp_path, more))]
    assert loads == [Load("poisson", rate=4.0), Load("closed", concurrency=8)]


@pytest.mark.parametrize(
    ("strategy", "load"),
    [
        ({"kind": "synchronous"}, Load("closed", concurrency=1)),
        ({"kind": "throughput"}, Load("closed", concurrency=3)),
        ({"kind": "throughput", "max_concurrency": 2}, Load("closed", concurrency=2)),
        ({"kind": "throughput", "max_concurrency": 10240}, Load("closed", concurrency=3)),
        ({"kind": "constant", "rate": 2}, Load("constant", rate=2.0)),
        ({"kind": "constant", "rate": 2, "max_concurrency": 2}, Load("constant", 2, rate=2.0)),
        ({"kind": "constant", "rate": 2, "max_concurrency": 10240}, Load("constant", rate=2.0)),
        ({"type_": "concurrent", "streams": 5}, Load("closed", concurrency=5)),
        ({"type_": "trace", "time_scale": 1.0}, Load("trace", trace="trace")),
        ({"kind": "replay"}, Load("trace", trace="replay")),
    ],
)
def test_loads(strategy: dict[str, Any], load: Load, tmp_path: Path) -> None:
    (found,) = read_foreign(written(tmp_path, config={"strategy": strategy}))
    assert found.load == load
    first = make_record(found, "mine", "chat", 0, Slo(), cold=False).generations[0]
    assert first.submitted_ns - first.scheduled_ns == (0 if load.kind == "closed" else 20_000_000)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ({"kind": "tidal"}, "config.strategy: is 'tidal'; expected one of synchronous, concurrent"),
        ({"kind": "poisson"}, "config.strategy.rate: None is no number"),
        ({"kind": "trace"}, "targeted_start: missing; strategy 'trace' needs it"),
    ],
)
def test_what_would_be_read_as_a_closed_loop_is_refused(
    strategy: dict[str, Any], words: str, tmp_path: Path
) -> None:
    one = answered(100.0)
    del one["info"]["timings"]["targeted_start"]
    content = {"requests": {"successful": [one]}, "metrics": {}}
    with pytest.raises(UserError, match=words):
        read_foreign(written(tmp_path, config={"strategy": strategy}, **content))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"requests": {}}, r"benchmarks\[0\]: requests: details of 0 of 3 requests"),
        ({"requests": {"successful": [answered(1.0)]}}, "details of 1 of 3 requests"),
        ({"requests": {"successful": 3}}, "requests.successful: expected a list of objects"),
    ],
)
def test_a_strange_file_is_refused_in_a_line(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        read_foreign(written(tmp_path, **changed))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("request_start", "now", "request_start: 'now' is no number"),
        ("first_token_iteration", 1.0, "the first token before the request"),
        ("token_iterations", 1.5, "token_iterations: 1.5 is no number of tokens"),
    ],
)
def test_strange_stamps_are_refused(name: str, value: Any, words: str, tmp_path: Path) -> None:
    one = answered(100.0)
    one["info"]["timings"][name] = value
    with pytest.raises(UserError, match=words):
        read_foreign(written(tmp_path, metrics={}, requests={"successful": [one]}))


def test_a_file_of_nobody_names_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"some": "thing"}')
    with pytest.raises(UserError, match="of no known tool; expected what 'vllm bench serve"):
        read_foreign(tmp_path / "x.json")
    (tmp_path / "y.json").write_text('{"benchmarks": []}')
    with pytest.raises(UserError, match="no benchmark in it"):
        read_foreign(tmp_path / "y.json")
