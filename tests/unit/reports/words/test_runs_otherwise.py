"""Methods inside vLLM that run it otherwise than plain vLLM."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.sections import results
from reports.words.doubts.runs_otherwise import sentences
from results import load
from tests.support.results.report_runs import ENGINES, LOADS, write_run

SYNC, ASYNC = ({"async_scheduling": is_async, "model_runner": "V1"} for is_async in (False, True))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    small: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS[:2], "repeats": 2}
    folder = tmp_path_factory.mktemp("otherwise")
    return overview(load(write_run(folder, engines=ENGINES[:2], requests=6, **small)))


def ran(seen: Overview, **effective: dict[str, Any]) -> tuple[Cell, ...]:
    names = {name.replace("_", "-"): how for name, how in effective.items()}
    return tuple(
        dataclasses.replace(c, effective=names.get(c.variant.backend, {})) for c in seen.cells
    )


def test_who_waits_between_steps_is_said_once_beside_the_results(seen: Overview) -> None:
    cells = ran(seen, vllm=ASYNC, vllm_early_exit=SYNC)
    words = (
        "vllm-early-exit ran on vLLM's synchronous scheduler, vllm on the asynchronous one: "
        "a part of their ratio to it comes from that."
    )
    assert [*sentences(cells)] == [words]


@pytest.mark.parametrize(
    "effective",
    [{"vllm": ASYNC, "vllm_early_exit": ASYNC}, {"vllm_early_exit": SYNC}, {"vllm": ASYNC}],
    ids=["alike", "of plain vLLM nothing is known", "of the other nothing"],
)
def test_alike_and_unknown_say_nothing(
    seen: Overview, effective: dict[str, dict[str, Any]]
) -> None:
    assert not [*sentences(ran(seen, **effective))]


def test_another_runner_is_another_way(seen: Overview) -> None:
    cells = ran(seen, vllm={**SYNC, "model_runner": "V2"}, vllm_early_exit=SYNC)
    (found,) = sentences(cells)
    assert "on vLLM's V1 model runner, vllm on the V2 one" in found


def test_the_results_say_it(seen: Overview) -> None:
    changed = dataclasses.replace(seen, cells=ran(seen, vllm=ASYNC, vllm_early_exit=SYNC))
    made = results.section(changed, Samples())
    assert any("synchronous scheduler" in words for words in made.words)
