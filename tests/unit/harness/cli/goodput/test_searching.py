"""A search on a queue in virtual time: other objectives, what answers are worth, a late client."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.soundness.goodput_search import SERVICE_S, capacity
from harness.cli.goodput.command import _scales
from harness.cli.goodput.probe_lengths import IdleSystem
from harness.cli.goodput.probing import ProbedLoad, Prober
from harness.cli.goodput.search_run import SearchedSystems, _told, tell
from harness.cli.goodput.searching import SystemSearch
from harness.core.errors import UserError
from harness.core.nouns import Slo, Workload
from harness.experiment.choices import WorkloadChoice
from results.metrics.arrays import from_record
from tests.support.results.virtual_server import SETTINGS, SYSTEM, VirtualServer, searched


def test_a_wider_objective_is_searched_on_the_same_probes() -> None:
    server = VirtualServer(right=0.75)
    one = searched(server, scales=(0.5, 2.0))
    truth = {scale: capacity(4 * scale, 0.95) / SERVICE_S for scale in (0.5, 1.0, 2.0)}
    found = {1.0: one.first, **one.scales}
    for scale, at in found.items():
        assert at.found is not None
        assert at.found.rate == pytest.approx(truth[scale], rel=0.12), scale
    assert len(one.scales[2.0].probes) > len(one.first.probes), "those of the first count again"
    assert len(server.asked) < sum(len(at.probes) for at in found.values())
    assert one.answers is not None
    assert one.answers.mean == pytest.approx(0.75, abs=0.05)
    assert one.first.found is not None
    rate = one.first.found.rate * 0.75 * 0.95
    assert one.answers.right_per_s == pytest.approx(rate, rel=0.1)
    plain = one.plain(0.95)
    assert [at["scale"] for at in plain["scales"]] == [0.5, 2.0]
    assert plain["answers"]["score"] == "exact_match"


def test_a_system_that_answers_worse_than_it_has_to_has_no_rate() -> None:
    one = searched(VirtualServer(right=0.6), least_score=0.8)
    assert one.first.found is None
    assert one.first.limit.startswith("answers: exact_match 0.")
    assert one.first.limit.endswith("expected 0.8")
    assert one.answers is not None
    assert one.answers.right_per_s is None, "there is no rate at which they could be"
    assert searched(VirtualServer(right=0.9), least_score=0.8).first.found is not None


def test_each_objective_asks_what_the_answers_are_worth_at_its_own_rate() -> None:
    class Tired(VirtualServer):
        """Half of its answers are wrong where it is pressed."""

        def run(self, asked: Any) -> ProbedLoad:
            self._right = 0.5 if (asked[0].rate or 0) > 40 else 1.0
            return super().run(asked)

    one = searched(Tired(), scales=(0.5, 4.0), least_score=0.8)
    assert one.first.found is not None
    assert one.scales[0.5].found is not None
    assert _told(one.scales[4.0]).startswith("no rate found: answers: exact_match 0.")
    wide = one.plain(0.95)["scales"][1]
    assert (wide["scale"], wide["rate_per_s"], wide["low_per_s"]) == (4.0, None, None)
    assert wide["limit"].endswith("expected 0.8")


def test_where_the_client_is_late_at_first_lower_rates_are_tried() -> None:
    late_from = 0.3 / SERVICE_S
    one = searched(VirtualServer(late_from=late_from))
    assert one.first.found is None
    assert one.first.ended == "the client was late"
    assert one.first.held is not None
    assert late_from / 1.3 < one.first.held < late_from
    assert _told(one.first).startswith(f"held at {one.first.held:g}/s; limited by the client")


def test_what_a_narrower_objective_held_a_wider_one_holds_at_least() -> None:
    settings: dict[str, Any] = {"slo": Slo(e2e_ms=200), "requests": 100}
    alone = VirtualServer()
    searched(alone, **settings)

    class Later(VirtualServer):
        """The client is late from the end of the first search on."""

        def run(self, asked: Any) -> ProbedLoad:
            if len(self.asked) == len(alone.asked):
                self._late_from = 0.01
            return super().run(asked)

    one = searched(Later(), scales=(8.0,), **settings)
    wide = one.scales[8.0]
    assert wide.probes == [], "those of the first are too short for it"
    assert one.first.found is not None
    assert (wide.found, wide.ended) == (None, "the client was late")
    assert wide.held == one.first.held is not None
    assert one.plain(0.95)["scales"][0]["low_per_s"] == one.first.held


def test_of_what_a_wider_objective_holds_at_least_it_is_told_whose_it_is() -> None:
    settings: dict[str, Any] = {"slo": Slo(e2e_ms=200), "requests": 100, "most": 2}
    alone = VirtualServer()
    searched(alone, **settings)

    class Slower(VirtualServer):
        """Every answer takes ten seconds more from the end of the first search on."""

        def served(self, rate: float | None, count: int, rng: Any) -> tuple[Any, Any]:
            due, times = super().served(rate, count, rng)
            return due, times + 10.0 * (len(self.asked) > len(alone.asked))

    one = searched(Slower(), scales=(8.0,), **settings)
    wide = one.scales[8.0]
    assert wide.found is None
    assert wide.held == one.first.held is not None
    told = f"held at {wide.held:g}/s; that is of a narrower slo, and this one missed at "
    assert _told(wide).startswith(told)


def test_the_next_command_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    tell(SearchedSystems(Path("a b"), [searched(VirtualServer(late_from=20))], {}), as_json=False)
    assert capsys.readouterr().out.endswith("next: decodebench report 'a b'\n")


def test_a_client_that_is_late_is_no_saturated_server() -> None:
    one = searched(VirtualServer(late_from=0.01 / SERVICE_S))
    assert (one.first.found, one.first.held) == (None, None)
    assert one.first.ended == "the client was late"
    assert one.first.limit.startswith("the client, which was late at ")
    with pytest.raises(UserError, match=r"^made up, gsm8k: no rate found: limited by the client, "):
        tell(SearchedSystems(Path("x"), [one], {}), as_json=False)


def test_requests_that_fail_are_no_bound_that_was_missed() -> None:
    class Failing(VirtualServer):
        """Every other request."""

        def run(self, asked: Any) -> ProbedLoad:
            found = super().run(asked)
            failed = [
                replace(own, finished="error") if number % 2 else own
                for number, own in enumerate(found.record.generations)
            ]
            record = replace(found.record, generations=failed)
            return replace(found, record=record, requests=from_record(record))

    one = searched(Failing())
    assert _told(one.first).endswith(
        "50.0% of the cases only (requests that failed); expected 95.0%"
    )


def test_a_probe_that_fails_ends_its_own_search_and_what_was_found_stays() -> None:
    idle = searched(VirtualServer(dies_at=0), scales=(2.0,))
    assert (idle.failed, idle.first.found, idle.scales) == (True, None, {})
    assert idle.first.limit == "a trial failed: made up: died"
    first = len(searched(VirtualServer()).first.probes)
    later = searched(VirtualServer(dies_at=first + 1), scales=(2.0, 4.0))
    assert later.failed
    assert later.first.found is not None
    assert later.first.ended == "narrow enough"
    assert [found.ended for found in later.scales.values()] == ["a trial failed"]
    assert later.plain(0.95)["ended"] == "narrow enough"


def test_a_probe_lasts_until_its_queue_shows() -> None:
    """60 requests take 1.2 s: at any rate all would be answered within 2 s."""
    one = searched(VirtualServer(), slo=Slo(e2e_ms=2000), requests=60)
    assert one.first.found is not None
    assert one.first.found.rate < 1.1 / SERVICE_S
    alone = IdleSystem(e2e_s=0.1, tpot_s=0.01)
    assert alone.enough_requests(100.0, Slo(ttft_ms=500), 60) == 1000, "20 times the bound"
    assert alone.enough_requests(1.0, Slo(e2e_ms=200), 60) == 60


def test_a_probe_that_would_be_too_short_is_not_run() -> None:
    """Of 1,000 requests at once nobody waits for 30 s who is served 50 a second."""
    server = VirtualServer()
    one = searched(server, slo=Slo(e2e_ms=30_000), requests=60, most_requests=1000)
    assert one.first.found is None
    assert one.first.ended == "more requests were needed than may be"
    told = "3.33/s needs 1,998 requests; 'limits: prompts' allows 1,000"
    assert _told(one.first) == f"held at 1.665/s; {told}"
    assert [load.rate for load in server.asked] == [None, 1.665], "the highest that may be tried"


@pytest.mark.parametrize(
    ("rows", "options", "bundled_rows", "told"),
    [
        (None, {}, 600, "bundled_rows' allows 600"),
        (None, {"mix": "1:1"}, 600, "bundled_rows' allows 150"),
        (None, {"prompt_limit": 100}, 603, "bundled_rows' allows 150"),
        (100, {"mix": "1:1"}, 600, "prompts' allows 1,000"),
    ],
)
def test_a_probe_makes_no_more_bundled_rows_than_may_be(
    rows: int | None, options: dict[str, Any], bundled_rows: int, told: str
) -> None:
    """A selection makes four rows for each that it draws, and of `rows` all probes ask."""
    workload = Workload("gsm8k", "bundled", rows=rows, options=options)
    system = dataclasses.replace(SYSTEM, workload=WorkloadChoice(workload, 8))
    settings = dataclasses.replace(
        SETTINGS, slo=Slo(e2e_ms=30_000), requests=60, most_requests=1000, most_bundled=bundled_rows
    )
    one = SystemSearch(cast(Prober, VirtualServer()), system, settings).searched()
    assert one.first.limit.split("'limits: ")[1].split(";")[0] == told


def test_a_system_that_misses_at_any_load_is_not_searched_for_hours() -> None:
    class Flaky(VirtualServer):
        """One of 20 answers is late, idle too."""

        def run(self, asked: Any) -> ProbedLoad:
            found = super().run(asked)
            late_ns = found.requests.commit_ns.copy()
            late_ns[::20] += int(1e9)
            requests = dataclasses.replace(found.requests, commit_ns=late_ns)
            return dataclasses.replace(found, requests=requests)

    server = Flaky()
    one = searched(server, share=0.99, slo=Slo(e2e_ms=1000), requests=300)
    assert one.first.found is None
    assert one.first.ended == "misses the slo idle"
    assert one.first.limit.startswith("even one request at a time meets the slo in 9")
    assert len(server.asked) < 8


def test_one_late_answer_of_an_idle_system_does_not_end_its_search() -> None:
    class Stalled(VirtualServer):
        def run(self, asked: Any) -> ProbedLoad:
            found = super().run(asked)
            if asked[0].rate:
                return found
            late_ns = found.requests.commit_ns.copy()
            late_ns[-1] += int(1e9)
            requests = dataclasses.replace(found.requests, commit_ns=late_ns)
            return dataclasses.replace(found, requests=requests)

    assert searched(Stalled(), share=0.99).first.found is not None


@pytest.mark.parametrize("word", ["0", "-1", "x", "nan", "inf", "1e-323", "9e-4", "1001", "1e307"])
def test_scales_are_numbers_that_a_search_can_work_with(word: str) -> None:
    """Of 1e307 and 1e200 a search ended in the error of a number that was too large or 0."""
    told = f"--slo-scale: '{word}'; expected numbers from 0.001 to 1000, as in 0.5,2"
    with pytest.raises(UserError, match=f"^{re.escape(told)}$"):
        _scales(f"1,{word}")
    assert _scales("0.5, 1,2,2") == (0.5, 2.0)
    assert _scales("0.001,1000") == (0.001, 1000.0)
