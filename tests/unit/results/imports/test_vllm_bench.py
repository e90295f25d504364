"""Files of `vllm bench serve`, read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import UNKNOWN_TOKEN, Load, Slo
from results.imports.files import read_foreign
from results.imports.foreign import ForeignLoad, experiment_of, make_record, shared_out

GOOD: dict[str, Any] = {
    "date": "20261101-120000",
    "backend": "openai",
    "model_id": "some/model",
    "num_prompts": 3,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 2,
    "input_lens": [10, 12, 14],
    "output_lens": [5, 2, 0],
    "ttfts": [0.01, 0.02, 0.0],
    "itls": [[0.02, 0.015], [], []],
    "start_times": [100.0, 100.5, 101.0],
    "generated_texts": ["abc", "d", ""],
    "errors": ["", "", "Connection\nlost"],
}


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "bench.json"
    told = {k: v for k, v in {**GOOD, **changed}.items() if v is not None}
    path.write_text(json.dumps(told))
    return path


def read(path: Path) -> ForeignLoad:
    (found,) = read_foreign(path)
    return found


def test_stamps_and_tokens(tmp_path: Path) -> None:
    found = read(written(tmp_path))
    assert (found.server, found.model) == ("openai", "some/model")
    assert found.started_at == "2026-11-01T12:00:00+00:00"
    made = make_record(found, "mine", "chat", 0, Slo(ttft_ms=15), cold=True)
    first, second, third = made.generations
    assert first.commit_ns == [100_010_000_000, 100_030_000_000, 100_045_000_000]
    assert first.commit_tokens == [1, 2, 2]
    assert first.token_ids == [UNKNOWN_TOKEN] * 5
    assert (first.scheduled_ns, first.submitted_ns) == (100 * 10**9, 100 * 10**9)
    assert (second.commit_tokens, second.finished) == ([2], "stop")
    assert (third.finished, third.error) == ("error", "Connection lost")
    assert made.texts == {"0": "abc", "1": "d"}
    assert made.trial.load == Load("closed", concurrency=2)
    assert made.trial.options == {"run": "mine"}
    assert made.backend is not None
    assert (made.backend.provenance, made.backend.lossless) == ("imported", None)
    assert not made.validity.valid, "one failed"
    assert made.validity.reasons[0] == "failures: 1 of 3 requests failed"


@pytest.mark.parametrize("name", ["bench.json", "bench.jsonl"])
def test_each_appended_result_is_a_load(name: str, tmp_path: Path) -> None:
    """As `--append-result` writes them: a newline before each but the first."""
    path = tmp_path / name
    results = [GOOD, {**GOOD, "request_rate": 4.0}, GOOD]
    path.write_text("\n".join(map(json.dumps, results)))
    found = read_foreign(path)
    assert [one.load.kind for one in found] == ["closed", "poisson", "closed"]
    assert found[0] == found[2]
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps({**GOOD, "itls": None}))
    with pytest.raises(UserError, match=rf"{name}, result 2: itls: missing; expected a list"):
        read_foreign(path)
    path.write_text(json.dumps(GOOD) + "\n{")
    with pytest.raises(UserError, match=rf"{name}, line 2: no JSON"):
        read_foreign(path)
    path.write_text(json.dumps(GOOD, indent=2))
    assert read_foreign(path) == found[:1]


def test_a_trace_with_times_of_its_own_is_no_closed_loop(tmp_path: Path) -> None:
    """Sent at once, all requests are made before the first one leaves."""
    at_once = read(written(tmp_path, queue_times=[0.1, 0.6, 101.0]))
    assert at_once == read(written(tmp_path))
    replayed = read(written(tmp_path, queue_times=[0.1, 0.2, 101.0]))
    assert replayed.load == Load("trace", trace="timed_trace", concurrency=2)
    assert "count from when a request of its trace was due" in replayed.definitions
    made = make_record(replayed, "mine", "chat", 0, Slo(), cold=True)
    waits = [g.submitted_ns - g.scheduled_ns for g in made.generations]
    assert waits == pytest.approx([100_000_000, 200_000_000, 0], abs=1000)
    for wrong in (["x", 0.0, 0.0], [float("nan"), 0.0, 0.0]):
        with pytest.raises(UserError, match="queue_times: "):
            read(written(tmp_path, queue_times=wrong))


@pytest.mark.parametrize(
    ("chunks", "tokens", "kept", "sizes"),
    [
        (3, 3, [0, 1, 2], [1, 1, 1]),
        (3, 6, [0, 1, 2], [1, 2, 3]),
        (1, 4, [0], [4]),
        (5, 3, [0, 2, 4], [1, 1, 1]),
        (4, 1, [0], [1]),
        (2, 5, [0, 1], [1, 4]),
    ],
)
def test_tokens_are_shared_out(chunks: int, tokens: int, kept: list[int], sizes: list[int]) -> None:
    assert shared_out([float(i) for i in range(chunks)], tokens) == (
        [float(i) for i in kept],
        sizes,
    )


@pytest.mark.parametrize(
    ("changed", "load"),
    [
        ({"max_concurrency": None}, Load("closed", concurrency=3)),
        ({"request_rate": 4.0, "max_concurrency": None}, Load("poisson", rate=4.0)),
        ({"request_rate": 4.0}, Load("poisson", 2, rate=4.0)),
        ({"request_rate": 4.0, "burstiness": 0.5}, Load("gamma", 2, rate=4.0, burstiness=0.5)),
        ({"request_rate": 4.0, "burstiness": "inf"}, Load("constant", 2, rate=4.0)),
    ],
)
def test_loads(changed: dict[str, Any], load: Load, tmp_path: Path) -> None:
    assert read(written(tmp_path, **changed)).load == load


def test_the_wait_for_a_place_is_in_the_latencies_where_it_is_told(tmp_path: Path) -> None:
    """With a limit it is the server's, without one the client's own lateness."""
    told = {"request_rate": 4.0, "errors": [""] * 3, "output_lens": [5, 2, 1]}
    waits = {"queue_times": [0.0, 0.2, 0.3]}
    for most, more, waited, words in (
        (2, waits, [0, 200, 300], "count from when its client had made a request, and"),
        (None, waits, [0, 200, 300], "count from when its client had made a request, and"),
        (2, {}, [0, 0, 0], "was due (nor is the wait for one of its 2 places in them), and"),
        (None, {}, [0, 0, 0], "from the sending of a request, not from when it was due, and"),
    ):
        found = read(written(tmp_path, **told, **more, max_concurrency=most))
        assert words in found.definitions
        made = make_record(found, "mine", "chat", 0, Slo(), cold=True)
        gaps = [(g.submitted_ns - g.scheduled_ns) / 1e6 for g in made.generations]
        assert gaps == pytest.approx(waited, abs=1e-3)
        late = made.validity.reasons[0].startswith("client-late: ")
        assert late == (most is None and bool(more))
        assert any(g.client_lag_ns for g in made.generations) == late


def test_a_cache_that_may_be_warm_is_said(tmp_path: Path) -> None:
    changed = {"errors": [""] * 3, "output_lens": [5, 2, 1]}
    load = read(written(tmp_path, **changed))
    made = make_record(load, "a", "chat", 0, Slo(), cold=False)
    assert not made.validity.valid
    assert made.validity.reasons[0].startswith("cache-unknown: ")
    sound = make_record(load, "a", "chat", 0, Slo(), cold=True)
    assert sound.validity.valid
    assert [r.partition(":")[0] for r in sound.validity.reasons] == [
        "noise-not-checked",
        "imported",
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"itls": None}, "itls: missing; expected a list: 'vllm bench serve --save-result"),
        ({"start_times": None}, "start_times: missing, without which nobody knows"),
        ({"ttfts": [0.1, 0.2]}, "expected as many of each"),
        ({"ttfts": [0.1, "x", 0.2]}, "ttfts: 'x' is no number"),
        ({"start_times": [1.0, float("nan"), 2.0]}, "start_times: nan is no time"),
        ({"itls": [[-1.0], [], []]}, "itls: -1.0 is no time"),
        ({"output_lens": [5.5, 2, 0]}, "output_lens: 5.5 is no number of tokens"),
        ({"itls": [3, [], []]}, "bench.json: itls[0]: is 3; expected a list of times"),
        ({"itls": [[], None, []]}, "bench.json: itls[1]: is null; expected a list of times"),
        ({"itls": [[], [], "0.1"]}, 'bench.json: itls[2]: is "0.1"; expected a list of times'),
        ({"request_rate": "fast"}, "could not convert string to float"),
        ({"max_concurrency": -2}, "max_concurrency: is -2; expected a whole number of at least 1"),
        ({name: [] for name in GOOD if isinstance(GOOD[name], list)}, "expected as many of each"),
    ],
)
def test_a_strange_file_is_refused_in_a_line(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        read(written(tmp_path, **changed))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [("[1]", "expected an object"), ("{", "no JSON")])
def test_what_is_no_result_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UserError, match=words):
        read(tmp_path / "x")
    with pytest.raises(UserError, match="No such file"):
        read(tmp_path / "y")


def test_the_first_run_is_what_others_are_compared_with(tmp_path: Path) -> None:
    load = read(written(tmp_path))
    slo = Slo(ttft_ms=100)
    made = [make_record(load, name, "chat", 0, slo, cold=True) for name in ("new", "old", "new")]
    found = experiment_of("x", made, "old")
    assert [choice["label"] for choice in found["backends"]] == ["old", "new"]
    assert found["reference"] == "vllm-bench"
    assert [one["workload"]["name"] for one in found["workloads"]] == ["chat"]
    assert [load["concurrency"] for load in found["load"]] == [2]
    assert found["slo"]["ttft_ms"] == 100


def test_rates_that_rise_are_no_load_of_ours(tmp_path: Path) -> None:
    path = written(tmp_path, max_concurrency=None, ramp_up_strategy="linear")
    with pytest.raises(UserError, match=r"ramp_up_strategy: is 'linear'; expected one rate"):
        read(path)
