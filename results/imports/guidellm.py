"""What `guidellm run --output kind=json,...` wrote (GuideLLM 0.8, `guidellm.schemas`): a file with
a benchmark for each load of its profile, and the requests of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.nouns import Load, LoadKind
from results.imports.foreign import ForeignLoad, ForeignRequest, waited_for_a_place
from results.imports.told import one_line, part, places, read_object, seconds, tokens

TOOL = "guidellm"
DEFINITIONS = (
    "measured by GuideLLM: it stamps the first and the last chunk of an answer and counts those "
    "between, which are spread evenly here, so that percentiles of itl_s are of means"
)
_OPEN: Mapping[str, LoadKind] = {
    "constant": "constant",
    "poisson": "poisson",
    "async": "poisson",
}
_TRACES = ("trace", "replay")
_SENT, _ENDED = ("request_start", "resolve_start"), ("request_end", "resolve_end")
_STATUSES = ("successful", "errored", "incomplete")
_ByStatus = Mapping[str, Sequence[Mapping[str, Any]]]
_CLOSED = ("synchronous", "concurrent", "throughput")


def is_guidellm(told: Mapping[str, Any]) -> bool:
    """Whether an object is such a file's."""
    return isinstance(told.get("benchmarks"), list)


def read_guidellm(path: Path) -> list[ForeignLoad]:
    """The loads in a file. Raises `UserError` for a file without details of its requests, and for
    details that contradict one another."""
    told = read_object(path)
    found = []
    for place, one in enumerate(told.get("benchmarks") or ()):
        where = f"{path}: benchmarks[{place}]"
        if not isinstance(one, dict):
            raise UserError(f"{where}: expected an object")
        try:
            found.append(_load(one, told))
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{where}: {' '.join(str(error).split())}") from None
    if not found:
        raise UserError(f"{path}: no benchmark in it")
    return found


def _load(one: Mapping[str, Any], told: Mapping[str, Any]) -> ForeignLoad:
    told_of = part(one, "requests")
    every = {status: _listed(told_of, status) for status in _STATUSES}
    requests = _measured(every, part(one, "scheduler_metrics"))
    done = len(requests["successful"]) + len(requests["errored"])
    totals = part(one, "metrics", "request_totals")
    known = sum(int(totals.get(status) or 0) for status in ("successful", "errored"))
    if not done or (totals and known != done):
        raise ValueError(f"requests: details of {done} of {known} requests; expected all of them")
    made = sorted(_requests(requests), key=lambda found: found.sent_s)
    outside = sum(map(len, every.values())) - sum(map(len, requests.values()))
    left = f"; {outside} requests outside its measured time are left out" if outside else ""
    backend = part(one, "config", "backend")
    load = _shape(part(one, "config", "strategy"), len(made) + outside)
    if load.kind == "trace" and any(r.due_s is None for r in made if r.chunks_s):
        raise ValueError(f"targeted_start: missing; strategy '{load.trace}' needs it")
    if load.kind == "closed":  # a place that is free is no moment at which a request is due
        made = [replace(found, due_s=None) for found in made]
    elif load.concurrency:
        made = list(waited_for_a_place(made))
    return ForeignLoad(
        TOOL,
        DEFINITIONS + left,
        server=str(backend.get("kind") or backend.get("type_") or "openai_http"),
        model=str(backend.get("model") or part(told, "args", "backend").get("model") or "unknown"),
        load=load,
        started_at=datetime.fromtimestamp(made[0].sent_s, UTC).isoformat(timespec="seconds"),
        requests=tuple(made),
    )


def _listed(requests: Mapping[str, Any], status: str) -> Sequence[Mapping[str, Any]]:
    found = requests.get(status) or []
    if not isinstance(found, list) or not all(isinstance(r, dict) for r in found):
        raise TypeError(f"requests.{status}: expected a list of objects")
    return found


def _measured(requests: _ByStatus, about: Mapping[str, Any]) -> _ByStatus:
    """Those that the tool's own totals count: in flight at some moment between its warm-up and its
    cool-down (`GenerativeRequestsAccumulator.get_within_range`)."""
    bounds = [about.get(name) for name in ("measure_start_time", "measure_end_time")]
    if None in bounds:
        return requests
    begin, end = (seconds(bound, "scheduler_metrics") for bound in bounds)

    def is_in(one: Mapping[str, Any]) -> bool:
        timings = part(one, "info", "timings")
        sent, ended = _first(timings, *_SENT), _first(timings, *_ENDED)
        sent = ended if sent is None else sent
        return (ended is None or seconds(ended, "request_end") >= begin) and (
            sent is None or seconds(sent, "request_start") <= end
        )

    return {status: [one for one in those if is_in(one)] for status, those in requests.items()}


def _requests(requests: _ByStatus) -> Iterator[ForeignRequest]:
    for one in requests["successful"]:
        yield _answered(one)
    for one in requests["errored"]:
        info = part(one, "info")
        sent, due = _begun(part(info, "timings"))
        error = one_line(info.get("error") or one.get("error"), "it failed")
        yield ForeignRequest(_prompt(one), sent, (), 0, error, due_s=due)
    for one in requests["incomplete"]:
        timings = part(one, "info", "timings")
        if _first(timings, *_SENT) is not None:  # else it never left
            sent, due = _begun(timings)
            yield ForeignRequest(_prompt(one), sent, (), 0, cut=True, due_s=due)


def _answered(one: Mapping[str, Any]) -> ForeignRequest:
    timings = part(one, "info", "timings")
    sent, due = _begun(timings)
    end = _first(timings, *_ENDED)
    # without streaming the whole answer is one chunk
    first = timings.get("first_token_iteration")
    last = timings.get("last_token_iteration")
    begin = seconds(end if first is None else first, "first_token_iteration")
    stop = seconds(end if last is None else last, "last_token_iteration")
    chunks = max(1, tokens(timings.get("token_iterations") or 0, "token_iterations"))
    told = part(one, "output_metrics").get("text_tokens")
    answer = one.get("output_tokens")
    count = tokens(answer if answer is not None else (told or chunks), "output_tokens")
    if stop < begin or begin < sent:
        raise ValueError("timings: the first token before the request, or the last before it")
    if count == 0:
        return ForeignRequest(_prompt(one), sent, (), 0, "no token came", due_s=due)
    gap = (stop - begin) / (chunks - 1) if chunks > 1 else 0.0
    held = timings.get("predecessor_completed")
    cached = part(one, "input_metrics").get("cached_tokens", one.get("cached_tokens"))
    return ForeignRequest(
        _prompt(one),
        sent,
        tuple(begin + gap * place for place in range(chunks)),
        count,
        text=str(one.get("output") or ""),
        due_s=due,
        held_s=None if held is None else seconds(held, "predecessor_completed"),
        cached_tokens=None if cached is None else tokens(cached, "cached_tokens"),
    )


def _begun(timings: Mapping[str, Any]) -> tuple[float, float | None]:
    """When a request left, and when it was to leave."""
    sent = seconds(_first(timings, *_SENT), "request_start")
    due = timings.get("targeted_start")
    return sent, None if due is None else seconds(due, "targeted_start")


def _first(timings: Mapping[str, Any], *names: str) -> Any:
    """Of the stamps that are there, the first in this order."""
    return next((timings[name] for name in names if timings.get(name) is not None), None)


def _prompt(one: Mapping[str, Any]) -> int:
    return tokens(one.get("prompt_tokens") or 0, "prompt_tokens")


def _shape(strategy: Mapping[str, Any], requests: int) -> Load:
    """Of a strategy; without one as many at once as there are."""
    kind: Any = strategy.get("kind") or strategy.get("type_")
    most = places(strategy.get("max_concurrency"), "config.strategy.max_concurrency")
    if most is not None and most >= requests:  # as where nobody asked for a limit: 10,240
        most = None
    if kind in _OPEN:
        return Load(_OPEN[kind], most, seconds(strategy.get("rate"), "config.strategy.rate"))
    if kind in _TRACES:
        return Load("trace", most, trace=kind)
    if kind not in (None, *_CLOSED):
        expected = ", ".join((*_CLOSED, *_OPEN, *_TRACES))
        raise ValueError(f"config.strategy: is {kind!r}; expected one of {expected}")
    if kind == "synchronous":
        return Load("closed", concurrency=1)
    streams = places(strategy.get("streams"), "config.strategy.streams")
    return Load("closed", concurrency=streams or most or requests)
