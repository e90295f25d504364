"""The open loop of the two workers: what is asked of every system, and what comes of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.tetris.backend_process import answers
from benchmarks.tetris.open_loop import at_rate, goodput
from harness.core.nouns import Generation, Load, Request

MS = 1_000_000
WANTED = [Request(str(n), (1,), 4) for n in range(8)]


def told(name: str, scheduled_ms: float, took_ms: float, finished: Any = "length") -> Generation:
    begin = round(scheduled_ms * MS)
    end = begin + round(took_ms * MS)
    return Generation(
        name, begin, begin, 0, [begin, end], [1, 3], [1, 2, 3, 4], finished, "why" * (not finished)
    )


class PlayedProcess:
    """Answers each request so many milliseconds after its arrival; drops or doubles one."""

    def __init__(
        self, took_ms: float, lost: int = 0, twice: int = 0, finished: Any = "stop"
    ) -> None:
        self.took_ms, self.lost, self.twice, self.finished = took_ms, lost, twice, finished
        self.asked: list[tuple[Sequence[Request], Load]] = []

    def ask(self, wanted: Sequence[Request], load: Load) -> None:
        self.asked.append((wanted, load))

    def answer(self) -> list[Generation]:
        wanted, _ = self.asked[-1]
        found = [told(r.id, 1e3 * r.arrival_s, self.took_ms, self.finished) for r in wanted]
        return found[self.lost :] + found[: self.twice]


def test_goodput_is_what_is_in_time_a_second() -> None:
    found = [told("a", 0, 100), told("b", 900, 100), told("c", 1000, 1000)]
    assert goodput(found, 0.1) == pytest.approx((1.0, 2 / 3))
    assert goodput(found, 0.05) == (0.0, 0.0)


def test_every_system_has_the_same_arrivals_at_the_share_of_the_rate() -> None:
    chosen = argparse.Namespace(within=2.0, repeats=2)
    systems: Any = {
        "plain": [PlayedProcess(100), PlayedProcess(100)],
        "shrinking": [PlayedProcess(900)],
        "regrouping": [PlayedProcess(150), PlayedProcess(450)],
        "tetris": [PlayedProcess(50)],
    }
    closed = [told(str(n), 0, took) for n, took in enumerate((100, 110, 120))]
    found = at_rate(chosen, systems, WANTED, 40.0, closed)
    assert (found["requests_per_s"], found["objective_s"]) == (10.0, 0.22)
    arrivals = []
    for some in systems.values():
        parts = [{r.id: r.arrival_s for r in one.asked[-1][0]} for one in some]
        arrivals.append({name: at for part in parts for name, at in part.items()})
        assert all(load == Load("poisson", rate=10.0) for one in some for _, load in one.asked)
    assert all(one == arrivals[0] for one in arrivals)
    assert found["came_per_s"] == round(7 / max(arrivals[0].values()), 3)
    assert list(arrivals[0]) != sorted(arrivals[0]), "they are dealt out by turns"
    assert (found["plain"]["kept"], found["regrouping"]["kept"]) == (1.0, 0.5)
    assert found["tetris"]["over_plain"] > 1
    assert found["tetris"]["over_regrouping"] > 2
    assert {"over_plain", "over_shrinking"}.isdisjoint(found["plain"]), "or of nothing"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lost": 1}, "8 requests, and answers to others: 7"),
        ({"twice": 1}, "8 requests, and answers to others: 9"),
        ({"lost": 1, "twice": 1}, "8 requests, and answers to others: 8"),
        ({"finished": "error"}, "0: "),
        ({"finished": None}, "0: why"),
    ],
)
def test_what_is_lost_doubled_or_no_answer_is_no_goodput(wrong: dict[str, Any], said: str) -> None:
    played: Any = [PlayedProcess(1, **wrong), PlayedProcess(1)]
    if wrong == {"lost": 1, "twice": 1}:
        played[0].answer = lambda: [told("2", 0, 1)] * 2 + [told(n, 0, 1) for n in ("4", "6")]
    with pytest.raises(RuntimeError, match=said):
        answers(played, WANTED, Load("closed", concurrency=1))
