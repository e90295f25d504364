"""Drives real engines in a process of its own and writes down what they did, step by step.

Usage: ``python early_exit_child.py PLAN.json RECORD.json``. The plan is a list of engines, each
with the runs that it makes one after another (see `tests/support/exits/exit_plans.py`). The record
holds, for each run, every poll: which positions of which requests vLLM's scheduler put into the
step, as it says itself, and what the backend handed out.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from backends import open_backend
from backends.early_exit.plugin.telemetry import DecodedStep, summed
from harness.core.nouns import Commit, Model, Request

MAX_POLLS = 1500


def main() -> None:
    """Make every run of the plan. An engine that fails ends its own runs only."""
    plan, record = (Path(argument) for argument in sys.argv[1:3])
    found: dict[str, Any] = {}
    for engine in json.loads(plan.read_text()):
        try:
            found |= serve(engine)
        except Exception:
            found[engine["name"]] = {"error": traceback.format_exc()}
        record.write_text(json.dumps(found))


def serve(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Open an engine, make its runs, close it."""
    directory, name = Path(engine["model"]), engine["backend"]
    model = Model("tiny", dtype=engine["dtype"])
    backend: Any = open_backend(name, directory, model, engine["options"])
    steps: list[Any] = []
    watch(backend, steps)
    found: dict[str, Any] = {}
    try:
        for run in engine["runs"]:
            try:
                backend.reset()
                if name != "vllm":
                    backend.configure(run["configure"])
                if run["mutate"]:
                    filling = backend._causal.model.filling
                    filling.forward = MUTATIONS[run["mutate"]](filling.forward)
                found[run["name"]] = {"polls": make(backend, run, steps)}
                if run["mutate"]:
                    del filling.forward
            except Exception:
                found[run["name"]] = {"error": traceback.format_exc()}
                break
    finally:
        backend.close()
    return found


def watch(backend: Any, steps: list[Any]) -> None:
    """Note what the scheduler decides: of each row the first position and the count."""
    scheduler = backend._engine.engine_core.engine_core.scheduler
    plain = scheduler.schedule

    def schedule(*arguments: Any, **named: Any) -> Any:
        output = plain(*arguments, **named)
        starts = {row.req_id: row.num_computed_tokens for row in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        starts |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        rows = {n: [starts[n], count] for n, count in output.num_scheduled_tokens.items()}
        steps.append({n.rpartition("-")[0]: row for n, row in rows.items()})
        return output

    scheduler.schedule = schedule


def make(backend: Any, run: Mapping[str, Any], steps: list[Any]) -> list[dict[str, Any]]:
    """Submit each request before its poll and poll until all are answered."""
    coming = [
        (at, Request(name, tuple(prompt), tokens, ignore_eos=True))
        for at, name, prompt, tokens in run["requests"]
    ]
    waiting: set[str] = set()
    decoded = watch_log(backend) if hasattr(backend, "_log") else {}
    begun: set[str] = set()
    polls: list[dict[str, Any]] = []
    for now in range(MAX_POLLS):
        if now == run["reset_at"]:
            backend.reset()
            waiting.clear()
            decoded.clear()
            begun.clear()
            polls.append({"reset": True})
        for request in [request for at, request in coming if at == now]:
            backend.submit(request)
            waiting.add(request.id)
        coming = [pair for pair in coming if pair[0] > now]
        steps.clear()
        commits = []
        for commit in backend.poll():
            name = commit.request_id
            counts = decoded[name].pop(0) if name in begun and name in decoded else {}
            commits.append(told(commit, counts))
            begun.add(name)
        polls.append({"steps": list(steps), "commits": commits})
        waiting -= {commit[0] for commit in commits if commit[2]}
        if not waiting and not coming:
            return polls
    raise RuntimeError(f"{sorted(waiting)} unanswered after {MAX_POLLS} polls")


def watch_log(backend: Any) -> dict[str, list[dict[str, float]]]:
    """By request, the counts of each token that it decoded, as they are noted from now on."""
    found: dict[str, list[dict[str, float]]] = {}
    log = backend._log
    note = type(log).note

    def noted(step: DecodedStep, live: Container[str]) -> None:
        note(log, step, live)
        for name, part in zip(step.names, step.parts(), strict=True):
            if name in live:
                counts = summed([part])
                found.setdefault(name.rpartition("-")[0], []).append(counts)

    log.note = noted
    return found


def told(commit: Commit, counts: Mapping[str, float]) -> list[Any]:
    """The commit, and the counts of the step that decoded its token; none of a prompt's token."""
    parts = [commit.request_id, list(commit.token_ids), commit.finished, dict(commit.telemetry)]
    return [*parts, commit.error, dict(counts)]


def layer_by_layer(fill: Any) -> Any:
    """The fill where none of our kernels fits vLLM's caches; for the rest of the engine's life."""
    from backends.early_exit.fill.fill import _EachLayer

    filling = fill.__self__
    filling._writer = lambda exit_layer: _EachLayer(filling._layers[exit_layer:])
    return fill


MUTATIONS: dict[str, Callable[[Any], Any]] = {
    "writes nothing": lambda fill: lambda layer, stream, positions: None,
    "turns keys by one position too many": lambda fill: (
        lambda layer, stream, positions: fill(layer, stream, positions + 1)
    ),
    "forgets the hidden state": lambda fill: (
        lambda layer, stream, positions: fill(layer, stream * 0 + 1, positions)
    ),
    "writes layer by layer": layer_by_layer,
}
"""Fills made from the right one: wrong ones, and one that goes another way."""


if __name__ == "__main__":
    main()
