"""What `vllm-speculative` tells of an engine's steps, and forgets between trials."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)

from backends.vllm.drafts import forget_answers
from backends.vllm.speculative import VllmSpeculative
from harness.core.decisions import Decisions


def backend(requests: dict[str, Any]) -> Any:
    """Without an engine."""
    found = object.__new__(VllmSpeculative)
    found._seen, found._records, found._layers = {}, True, 4
    found._scheduler = SimpleNamespace(requests=requests)
    found._decided, found._under_way, found._most_found = Decisions(), 0, 0
    return found


def output(name: str, tokens: int, finish: str | None = None, told: Any = None) -> Any:
    return SimpleNamespace(
        request_id=name,
        new_token_ids=[1] * tokens,
        finish_reason=finish,
        spec_decode_metrics=told,
    )


def metrics(drafted: list[int], accepted: list[int]) -> Any:
    return SimpleNamespace(per_step_drafted=drafted, per_step_accepted=accepted)


def test_drafts_by_which_a_prompt_is_padded_are_none() -> None:
    """vLLM books three that nobody made for a prompt of which one token is not cached."""
    told = metrics([3], [0])
    own = backend({"a": SimpleNamespace(spec_decode_metrics=told)})
    assert own._telemetry(output("a", 1), 0, 1) == {}
    step = own._telemetry(output("a", 1), 1, 1)
    assert step["drafted"] == 0
    told.per_step_drafted.append(3)
    told.per_step_accepted.append(2)
    step = own._telemetry(output("a", 3), 2, 3)
    assert (step["drafted"], step["accepted"]) == (3, 2)


def test_a_request_that_ends_with_its_first_token_leaves_nothing_behind() -> None:
    own = backend({})
    assert own._telemetry(output("a", 1, "stop", metrics([3], [0])), 0, 1) == {}
    assert own._seen == {}


def test_a_trace_has_the_requests_of_a_step_also_where_they_end_in_it() -> None:
    told = {name: SimpleNamespace(spec_decode_metrics=metrics([2], [1])) for name in "abcd"}
    own = backend(told)
    own._under_way = 4
    batches = []
    for name in told:
        own._telemetry(output(name, 2, "length", metrics([2], [1])), 1, 2)
        batches.append(own._decided.batch)
    assert batches == [[4]] * 4


@pytest.mark.parametrize(("most_found", "asked"), [(0, [0, 2, 3]), (3, [1, 3, 3])])
def test_a_search_that_found_fewer_was_asked_for_one_more(
    most_found: int, asked: list[int]
) -> None:
    told = metrics([], [])
    own = backend({"a": SimpleNamespace(spec_decode_metrics=told)})
    own._most_found, found = most_found, []
    own._telemetry(output("a", 1), 0, 1)
    for drafted in (0, 2, 3):
        if drafted:
            told.per_step_drafted.append(drafted)
            told.per_step_accepted.append(1)
        own._telemetry(output("a", 1 + (drafted > 0)), 1, 1 + (drafted > 0))
        assert own._decided.drafted == [drafted]
        found += own._decided.asked
    assert found == asked


def test_a_proposer_that_learns_from_answers_begins_anew() -> None:
    class Proposer:
        def __init__(self, config: Any) -> None:
            self.config, self.answers = config, list[str]()

    runner = SimpleNamespace(vllm_config="config", drafter=Proposer("config"))
    runner.drafter.answers.append("the first trial's")
    forget_answers(SimpleNamespace(model_runner=runner))
    assert (runner.drafter.config, runner.drafter.answers) == ("config", [])


def test_a_replay_hears_the_search_that_forgot_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial resets the backend, and vLLM's proposer is another one then."""
    from backends.vllm.backend import VllmBackend

    monkeypatch.setattr(VllmBackend, "reset", lambda self: None)
    done: list[Any] = []
    own = backend({})
    own._engine = SimpleNamespace(collective_rpc=done.append)
    own._replayed = SimpleNamespace(clear=lambda: None, watch_search=lambda: done.append("heard"))
    for learns, expected in ((True, [forget_answers, "heard"]), (False, [])):
        done.clear()
        own._learns = learns
        own.reset()
        assert done == expected
