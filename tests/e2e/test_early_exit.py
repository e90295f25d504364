"""Early exit inside a real vLLM, token for token against plain PyTorch.

Every engine runs in a child process that notes what vLLM's scheduler put into each step. The steps
are then decided anew by `tests/support/exits/exit_reference.py`: tokens, exit layers, each
sequence's own exit and all counts of the telemetry must be the same.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.child import CHILDREN, run_child
from tests.support.exits import exit_plans
from tests.support.exits.exit_models import write_models
from tests.support.exits.exit_replay import ReplayOutcome, replay

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


class Record:
    """What the child did with every engine."""

    def __init__(self, folder: Path) -> None:
        self.paths = write_models(folder)
        groups = (
            exit_plans.eager_engines,
            exit_plans.prompt_engines,
            exit_plans.eager_plain,
            exit_plans.wrong_engines,
            exit_plans.demo_engines,
            exit_plans.compiled_plain,
        )
        engines = [engine for group in groups for engine in group(self.paths)]
        self.engines = {engine.name: engine for engine in engines}
        plan, record = folder / "plan.json", folder / "record.json"
        plan.write_text(json.dumps([engine.plan() for engine in engines]))
        script = CHILDREN / "early_exit_child.py"
        run_child(script, plan, record, timeout=1500)
        self.found = json.loads(record.read_text())

    def polls(self, engine: str, run: str) -> list[dict[str, Any]]:
        """Fails with the child's traceback when the run or its engine broke."""
        told = self.found.get(engine, {})
        assert "error" not in told, told["error"][-3000:]
        made = self.found[f"{engine}/{run}"]
        assert "error" not in made, made["error"][-3000:]
        polls: list[dict[str, Any]] = made["polls"]
        return polls

    def outcomes(self, engine: str) -> dict[str, ReplayOutcome]:
        """Every run of an engine against the reference."""
        chosen = self.engines[engine]
        return {
            run.name: replay(
                chosen.model,
                chosen.rule(run),
                [request for _, request in run.load],
                self.polls(engine, run.name),
            )
            for run in chosen.runs
        }

    def tokens(self, engine: str, run: str) -> dict[str, list[int]]:
        """What was handed out, by request."""
        found: dict[str, list[int]] = {}
        for poll in self.polls(engine, run):
            for name, tokens, *_ in poll.get("commits", ()):
                found.setdefault(name, []).extend(tokens)
        return found


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record(tmp_path_factory.mktemp("early-exit"))


def assert_equal(outcomes: dict[str, ReplayOutcome]) -> None:
    """Every run was decided as the reference decides, and no tie could have hidden a defect."""
    assert {name: o.verdict() for name, o in outcomes.items() if o.problems} == {}
    assert min(o.logit_margin for o in outcomes.values()) > 1e-5
    assert min(o.confidence_margin for o in outcomes.values()) > 1e-6


@pytest.mark.parametrize(("engine", "depth"), [("grouped", 8), ("biased", 6)])
def test_every_measure_in_batches_that_grow_and_shrink(
    record: Record, engine: str, depth: int
) -> None:
    outcomes = record.outcomes(engine)
    assert_equal(outcomes)
    for name, outcome in outcomes.items():
        assert set(outcome.batches) == set(range(1, 17)), name
        assert outcome.mixed > 10, name
    turns = outcomes["every layer in turn"]
    assert set(turns.exits) == set(range(1, depth + 1))
    for name in exit_plans.confident(depth, Path(), Path()):
        assert len(outcomes[name].exits) > 2, name
        assert outcomes[name].spread > 20, name


@pytest.mark.parametrize("engine", ["grouped", "biased"])
def test_each_measure_decides_otherwise(record: Record, engine: str) -> None:
    """A setting that had no effect would give the tokens of another."""
    runs = [run.name for run in record.engines[engine].runs if run.name != "reset midway"]
    found = Counter(json.dumps(record.tokens(engine, name), sort_keys=True) for name in runs)
    assert set(found.values()) == {1}


def test_a_reset_in_the_middle_leaves_nothing_behind(record: Record) -> None:
    for engine in ("grouped", "biased"):
        tokens = record.tokens(engine, "reset midway")
        fresh = record.tokens(engine, "every layer in turn")
        assert {name: tokens[f"again-{name}"] for name in fresh} == fresh
        load = record.engines[engine].runs[-1].load
        cut_short = [r for _, r in load if len(tokens.get(r.id, ())) < r.max_new_tokens]
        assert cut_short


def prompt_engines() -> list[str]:
    return [engine.name for engine in exit_plans.prompt_engines(NOWHERE)]


NOWHERE = {name: Path() for name in ("grouped", "grouped heads", "grouped classifier")}


@pytest.mark.parametrize("engine", prompt_engines())
def test_prompts_in_pieces_cached_apart_and_too_many(record: Record, engine: str) -> None:
    assert_equal(record.outcomes(engine))


def rows(record: Record, engine: str) -> list[tuple[str, str, int, int, int]]:
    """Run, request, first position, count and prompt length of every row of every step."""
    found = []
    for run in record.engines[engine].runs:
        lengths = {request.id: len(request.prompt_ids) for _, request in run.load}
        for poll in record.polls(engine, run.name):
            for step in poll["steps"]:
                found += [(run.name, n, start, c, lengths[n]) for n, (start, c) in step.items()]
    return found


def test_the_prompts_were_hard(record: Record) -> None:
    """Last chunks of one token; prefixes of which one token or some are left; answers' own blocks
    found again; requests that begin anew, and the answer's part of that in chunks."""
    cut = rows(record, "cut")
    assert any(count == 1 and start and start + 1 == length for *_, start, count, length in cut)
    first: dict[tuple[str, str], int] = {}
    for run, name, start, *_ in rows(record, "cut, cached"):
        first.setdefault((run, name), start)
    assert set(first.values()) >= {0, 32, 64}
    tight = rows(record, "tight")
    again = [key for key, times in Counter((r, n) for r, n, s, *_ in tight if not s).items()
             if times > 1]  # fmt: skip
    assert len(again) > 5
    assert any(start >= length and count > 1 for *_, start, count, length in tight)


@pytest.mark.parametrize("engine", [name for name in prompt_engines() if "apart" in name])
def test_prompts_apart_are_in_no_step_that_decodes(record: Record, engine: str) -> None:
    """Nor does what decodes wait for two prompt steps in a row."""
    for run in record.engines[engine].runs:
        lengths = {request.id: len(request.prompt_ids) for _, request in run.load}
        newest, waited, computed = set[str](), 0, dict[str, int]()
        for poll in record.polls(engine, run.name):
            for step in poll["steps"]:
                prompts = {
                    name
                    for name, (start, _) in step.items()
                    if start < max(lengths[name], computed.get(name, 0)) or name not in newest
                }
                assert not prompts or prompts == set(step), run.name
                waited = waited + 1 if prompts and newest - prompts else 0
                assert waited < 2, run.name
                for name, (start, count) in step.items():
                    computed[name] = start + count
            for name, *_, finished in (commit[:3] for commit in poll["commits"]):
                newest = newest - {name} if finished else newest | {name}


@pytest.mark.parametrize("mode", ["eager float32", "eager bfloat16", "compiled float32"])
def test_never_leaving_in_a_cut_engine_equals_unmodified_vllm(record: Record, mode: str) -> None:
    assert record.tokens(f"cut, {mode}", "never") == record.tokens(f"vllm, {mode}", "never")


@pytest.mark.parametrize("mode", ["eager float32", "eager bfloat16", "compiled bfloat16"])
def test_an_engine_that_never_leaves_equals_unmodified_vllm(record: Record, mode: str) -> None:
    assert record.tokens(f"whole, {mode}", "never") == record.tokens(f"vllm, {mode}", "never")


@pytest.mark.parametrize("mode", ["eager float32", "compiled float32"])
def test_compiled_segments_leave_as_eager_layers_do(record: Record, mode: str) -> None:
    outcomes = record.outcomes(f"cut, {mode}")
    assert_equal(outcomes)
    assert set(outcomes["turns"].exits) == {2, 4, 5, 6}
    assert len(outcomes["softmax"].exits) > 2


def test_a_wrong_fill_changes_the_tokens(record: Record) -> None:
    outcomes = record.outcomes("wrong")
    assert_equal({name: outcomes.pop(name) for name in ("right again", "by layers")})
    for name, outcome in outcomes.items():
        assert len(outcome.problems) > 100, name


def test_the_bundled_model_with_all_that_was_trained_for_it(record: Record) -> None:
    outcomes = record.outcomes("demo")
    assert_equal(outcomes)
    for name, outcome in outcomes.items():
        assert len(outcome.exits) > 2, name
        assert outcome.mixed, name
