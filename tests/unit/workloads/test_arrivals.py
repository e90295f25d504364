from __future__ import annotations

import gzip
import itertools
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UserError
from harness.core.nouns import Load, to_json
from workloads.arrivals import arrival_times


def _gaps(load: Load, count: int = 20_001, seed: int = 0) -> list[float]:
    times = arrival_times(load, count, seed)
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.mark.parametrize(
    ("load", "variation"),
    [
        (Load("constant", rate=4.0), 0.0),
        (Load("poisson", rate=4.0), 1.0),
        (Load("gamma", rate=4.0, burstiness=0.25), 2.0),
        (Load("gamma", rate=4.0, burstiness=4.0), 0.5),
    ],
)
def test_gaps_have_the_stated_mean_and_variation(load: Load, variation: float) -> None:
    """20,000 gaps: the mean is known to 1.4% at worst and the variation to about 4% (one sigma)."""
    gaps = _gaps(load)
    mean = statistics.fmean(gaps)
    assert mean == pytest.approx(0.25, rel=0.05)
    assert statistics.stdev(gaps) / mean == pytest.approx(variation, rel=0.1, abs=1e-9)


def test_poisson_gaps_are_exponential() -> None:
    """The share of gaps over x is exp(-rate x); Kolmogorov's bound at 0.1% for 20,000 draws."""
    gaps = sorted(_gaps(Load("poisson", rate=2.0)))
    distance = max(abs((n + 1) / len(gaps) - (1 - math.exp(-2.0 * x))) for n, x in enumerate(gaps))
    assert distance < 1.95 / math.sqrt(len(gaps))


def test_gaps_are_independent() -> None:
    gaps = _gaps(Load("gamma", rate=1.0, burstiness=0.5))
    assert abs(statistics.correlation(gaps[:-1], gaps[1:])) < 0.03


def test_burstiness_one_is_poisson() -> None:
    gamma = Load("gamma", rate=3.0, burstiness=1.0)
    assert arrival_times(gamma, 50, 7) == arrival_times(Load("poisson", rate=3.0), 50, 7)


def test_closed_loop_has_no_arrivals() -> None:
    assert arrival_times(Load("closed", concurrency=2), 3, 0) == [0.0, 0.0, 0.0]


@given(
    rate=st.floats(0.01, 1000),
    burstiness=st.floats(0.05, 20),
    count=st.integers(0, 60),
    seed=st.integers(0, 2**32),
)
def test_times_ascend_from_zero_and_repeat(
    rate: float, burstiness: float, count: int, seed: int
) -> None:
    load = Load("gamma", rate=rate, burstiness=burstiness)
    times = arrival_times(load, count, seed)
    assert len(times) == count
    assert times == sorted(times)
    assert times[:1] in ([], [0.0])
    assert all(math.isfinite(time) for time in times)
    assert arrival_times(load, count, seed) == times


def test_seeds_differ_and_a_longer_load_begins_the_same() -> None:
    load = Load("poisson", rate=1.0)
    assert arrival_times(load, 10, 1) != arrival_times(load, 10, 2)
    assert arrival_times(load, 20, 1)[:10] == arrival_times(load, 10, 1)


def test_times_are_pinned() -> None:
    """The same seed must mean the same load on every machine and version."""
    times = arrival_times(Load("gamma", rate=2.0, burstiness=0.5), 4, seed=42)
    assert times == pytest.approx(
        [0.0, 0.8045001461315131, 2.0847931139538245, 2.093662486808976], rel=1e-12
    )


BAD_LOADS = {
    "no rate": (Load("poisson"), "load poisson: 'rate' is missing"),
    "zero rate": (Load("constant", rate=0.0), "must be a positive number, got 0.0"),
    "negative": (Load("gamma", rate=-1.0, burstiness=1.0), "'rate' must be a positive number"),
    "nan": (Load("poisson", rate=math.nan), "must be a positive number, got nan"),
    "no burstiness": (Load("gamma", rate=1.0), "load gamma: 'burstiness' is missing"),
    "endless": (Load("gamma", rate=1.0, burstiness=math.inf), "'burstiness' must be a positive"),
    "beyond all time": (Load("poisson", rate=5e-324), "'rate' must be within 1e-09 to 1e+09"),
    "home of nobody": (
        Load("trace", trace="~nobody-here/t"),
        "trace '~nobody-here/t' is no usable",
    ),
    "long path": (Load("trace", trace="t" * 5000), "is no usable path: File name too long"),
    "no trace": (Load("trace"), "'trace' is missing"),
    "no such trace": (Load("trace", trace="no.txt"), "trace file 'no.txt' does not exist"),
}


@pytest.mark.parametrize(("load", "message"), BAD_LOADS.values(), ids=BAD_LOADS.keys())
def test_bad_load_is_one_line(load: Load, message: str) -> None:
    with pytest.raises(UserError) as raised:
        arrival_times(load, 5, 0)
    assert message in str(raised.value)


TRACES = {
    "trace.txt": b"100.5\n\n101\n103.25\n",
    "trace": b"100.5\r\n101\r\n103.25",
    "trace.csv": b"timestamp,tokens\n100.5,7\n101,8\n103.25,9\n",
    "trace.jsonl": b'{"timestamp": 100.5}\n{"timestamp": 101}\n{"timestamp": 103.25}\n',
    "trace.txt.gz": gzip.compress(b"100.5\n101\n103.25\n"),
    "trace.csv.gz": gzip.compress(b"timestamp\n100.5\n101\n103.25\n"),
}


@pytest.mark.parametrize("name", TRACES)
def test_trace_is_replayed_from_its_first_arrival(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(TRACES[name])
    assert arrival_times(Load("trace", trace=str(path)), 3, 0) == [0.0, 0.5, 2.75]
    assert arrival_times(Load("trace", trace=str(path)), 2, 0) == [0.0, 0.5]


BAD_TRACES = {
    "short": ("t.txt", b"1\n2\n", "the trace holds 2 arrivals, but there are 3 requests"),
    "backwards": ("t.txt", b"1\n3\n2\n", "line 3: time 2 is before the one above it, 3"),
    "negative": ("t.txt", b"-1\n", "line 1: expected a time in seconds, 0 or more, got '-1'"),
    "nan": ("t.txt", b"1\nnan\n", "line 2: expected a time in seconds, 0 or more, got 'nan'"),
    "endless": ("t.txt", b"1\ninf\n", "line 2: expected a time"),
    "word": ("t.txt", b"1\n\nsoon\n", "line 3: expected a time in seconds, 0 or more, got 'soon'"),
    "column": (
        "t.csv",
        b"timestamps\n1\n",
        "column 'timestamp' is missing (the row has: timestamps",
    ),
    "null": ("t.jsonl", b'{"timestamp": null}', "line 1: expected a time in seconds"),
    "true": ("t.jsonl", b'{"timestamp": true}', "line 1: expected a time in seconds"),
    "empty cell": (
        "t.csv",
        b"timestamp,n\n1,1\n,2\n",
        "line 3: expected a time in seconds, 0 or mo",
    ),
    "not text": ("t.txt", b"1\n\xff\n", "line 2: not UTF-8 text"),
    "not gzip": ("t.txt.gz", b"1\n2\n3\n", "broken gzip file"),
    "empty": ("t.txt", b"", "the trace holds 0 arrivals"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_TRACES.values(), ids=BAD_TRACES.keys())
def test_bad_trace_names_file_and_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        arrival_times(Load("trace", trace=str(path)), 3, 0)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)


def test_requests_of_a_trace_may_arrive_together(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("5\n5\n6\n6\n")
    assert arrival_times(Load("trace", trace=str(path)), 4, 0) == [0, 0, 1, 1]


def test_loads_that_are_not_drawn_anew_have_the_keys_of_before() -> None:
    assert "redraw" not in to_json(Load("poisson", rate=2.0))
    assert to_json(Load("poisson", rate=2.0, redraw=True))["redraw"] is True
