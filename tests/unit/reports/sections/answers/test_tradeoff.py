"""Curves over the load, quality against speed, and reasons counted, on a made-up run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.core.nouns import Load
from reports.figures.tradeoff import pareto_front
from tests.support.results.report_pages import section, written
from tests.support.results.report_runs import ENGINES, LOADS, MadeUpBackend

NOISY = MadeUpBackend("noisy", 0.009, reasons=("machine-noisy: others used 30%",))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    loads = (*LOADS[:2], Load("poisson", rate=4.0), Load("poisson", rate=8.0))
    folder = tmp_path_factory.mktemp("tradeoff")
    return written(folder, *ENGINES[:3], NOISY, loads=loads, repeats=2, requests=24)


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([], []),
        ([(1.0, 0.8)], [(1.0, 0.8)]),
        ([(1.0, 0.8), (2.0, 0.8)], [(2.0, 0.8)]),
        ([(1.0, 0.9), (2.0, 0.5), (1.5, 0.7), (1.4, 0.6)], [(1.0, 0.9), (1.5, 0.7), (2.0, 0.5)]),
        ([(1.0, 0.5), (1.0, 0.9)], [(1.0, 0.9)]),
    ],
)
def test_the_front_is_what_nothing_beats_in_both(
    points: list[tuple[float, float]], front: list[tuple[float, float]]
) -> None:
    assert pareto_front(points) == front


def test_quality_stands_against_speed_up(page: str) -> None:
    drawn = section(page, "tradeoff")
    assert "Task scores, and speed-up over the reference" in drawn
    assert "exact match against speed-up over the reference: gsm8k" in drawn
    assert re.search(
        r"vllm-early-exit threshold=0.8: closed c=1, \d\.\d\d×, exact match 0\.\d+<", drawn
    )


def test_each_backend_is_a_curve_of_throughput_and_latency(page: str) -> None:
    drawn = section(page, "load")
    assert "Output tokens per second against the time per token: gsm8k" in drawn
    found = re.findall(r"vllm: (\S+ \S+), \S+ tokens/s, \S+ ms per token<", drawn)
    assert found == ["closed c=1", "closed c=8", "poisson 4/s", "poisson 8/s"] or sorted(found) == [
        "closed c=1", "closed c=8", "poisson 4/s", "poisson 8/s",
    ]  # fmt: skip
    assert len(re.findall("ms per token, not valid<", drawn)) == 4


def test_goodput_stands_against_the_rate(page: str) -> None:
    drawn = section(page, "goodput")
    assert "Goodput against the rate: gsm8k" in drawn
    assert re.search(r"vllm: [\d.]+ to [\d.]+ requests/s<", drawn)


def test_every_kind_of_arrivals_has_its_curves_over_the_rate(tmp_path: Path) -> None:
    """Those of gamma and constant arrivals were left out."""
    loads = [
        *(Load("constant", rate=rate) for rate in (2.0, 4.0)),
        *(Load("gamma", rate=r, burstiness=b) for r in (2.0, 4.0) for b in (0.5, 2.0)),
        Load("gamma", rate=2.0, burstiness=3.0),  # a single rate is no curve
    ]
    page = written(tmp_path, *ENGINES[:2], loads=loads)
    for name, title in (
        ("load", "Output tokens per second against requests per second asked for"),
        ("goodput", "Goodput against the rate"),
    ):
        drawn = section(page, name)
        assert set(re.findall(rf'{title}: gsm8k, ([^<"]*)[<"]', drawn)) == {
            "constant load", "gamma load, burstiness 0.5", "gamma load, burstiness 2",
        }  # fmt: skip
        assert "<figcaption>gsm8k, gamma load, burstiness 2</figcaption>" in drawn


def test_reasons_are_counted_before_they_are_listed(page: str) -> None:
    text = section(page, "validity")
    assert "machine-noisy: 8 of 32 trials, in 4 cells." in text
    assert len(re.findall("<p>", text)) <= 5


def test_one_load_has_no_curve(tmp_path: Path) -> None:
    drawn = section(written(tmp_path, *ENGINES[:2], loads=LOADS[:1]), "load")
    assert "Nothing to draw" in drawn
    assert "<svg" not in drawn
