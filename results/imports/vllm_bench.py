"""What `vllm bench serve --save-result --save-detailed` wrote (vLLM 0.9 to 0.32,
`vllm/benchmarks/serve.py`)."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.nouns import Load
from results.compare.reasons import REASONS, REMARKS, slug
from results.imports.foreign import ForeignLoad, ForeignRequest, waited_for_a_place
from results.imports.told import one_line, part, places, read_objects, seconds

TOOL = "vllm-bench"
DEFINITIONS = (
    "measured by vllm bench serve: latencies count from {since}, and the tokens of a chunk are not "
    "told apart"
)
SENT = "the sending of a request, not from when it was due"
MADE = "when its client had made a request"
OF_TRACES = "when a request of its trace was due"
LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
DATE = "%Y%m%d-%H%M%S"
NOT_CARRIED = REMARKS | {"cache-unknown", *(r.slug for r in REASONS if r.concerns == "comparison")}
"""Reasons of an exported trial of ours that an imported one does not have for it: what it was
compared with stayed behind, and of caches nobody knew of the import asks anew (`--cold`)."""


def read_vllm_bench(path: Path) -> list[ForeignLoad]:
    """The loads in a file: one, and with `--append-result` one on each line. Raises `UserError` for
    a file that is something else, that has no details of its requests, or whose details contradict
    one another."""
    return [
        _read(told, f"{path}, result {place}" if place > 1 else str(path))
        for place, told in enumerate(read_objects(path), start=1)
    ]


def _read(told: Mapping[str, Any], where: str) -> ForeignLoad:
    for name in LISTS:
        if not isinstance(told.get(name), list):
            raise UserError(
                f"{where}: {name}: missing; expected a list: 'vllm bench serve --save-result "
                "--save-detailed' writes it"
            )
    counts = {name: len(told[name]) for name in (*LISTS, "start_times") if name in told}
    if len(set(counts.values())) > 1 or not told["errors"]:
        raise UserError(f"{where}: the details are of {counts} requests; expected as many of each")
    starts = told.get("start_times")
    if not isinstance(starts, list):
        raise UserError(
            f"{where}: start_times: missing, without which nobody knows what ran together; "
            "vLLM 0.9 and later write it"
        )
    texts = told.get("generated_texts")
    if not isinstance(texts, list) or len(texts) != len(starts):
        texts = [""] * len(starts)
    for place, gaps in enumerate(told["itls"]):
        if not isinstance(gaps, list):
            what = one_line(json.dumps(gaps), "")
            raise UserError(f"{where}: itls[{place}]: is {what}; expected a list of times")
    try:
        columns = [starts, *(told[name] for name in LISTS), texts]
        requests = tuple(itertools.starmap(_request, zip(*columns, strict=True)))
        load, due = _load(told, len(requests)), _due(told, requests)
        since = MADE
        if load.kind == "closed" and _is_schedule(due, requests):
            most = places(told.get("max_concurrency"), "max_concurrency")
            load, since = Load("trace", trace="timed_trace", concurrency=most), OF_TRACES
        if load.is_open and due:
            pairs = zip(requests, due, strict=True)
            requests = tuple(replace(one, due_s=at) for one, at in pairs)
            requests = waited_for_a_place(requests) if load.concurrency else requests
        else:
            wait = f" (nor is the wait for one of its {load.concurrency} places in them)"
            since = SENT + wait * (load.is_open and load.concurrency is not None)
        return ForeignLoad(
            TOOL,
            DEFINITIONS.format(since=since),
            server=str(told.get("backend") or told.get("endpoint_type") or "unknown"),
            model=str(told.get("model_id") or "unknown"),
            load=load,
            started_at=_date(told),
            requests=requests,
            doubts=_doubts(told),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{where}: {' '.join(str(error).split())}") from None


def _request(
    sent: float, prompt: int, tokens: int, ttft: float, gaps: list[float], error: str, text: object
) -> ForeignRequest:
    for name, value in (("start_times", sent), ("ttfts", ttft), *(("itls", gap) for gap in gaps)):
        seconds(value, name)
    for name, value in (("input_lens", prompt), ("output_lens", tokens)):
        if type(value) is not int or value < 0:
            raise ValueError(f"{name}: {value!r} is no number of tokens")
    if error or tokens == 0:
        return ForeignRequest(prompt, sent, (), 0, one_line(error, "no token came"))
    chunks = tuple(itertools.accumulate([sent + ttft, *gaps]))
    return ForeignRequest(prompt, sent, chunks, tokens, None, str(text))


def _load(told: Mapping[str, Any], requests: int) -> Load:
    """vLLM's rate "inf" sends everything at once, or as many as `max_concurrency` lets through; of
    a rate's it holds back those for which there is no place."""
    if (ramp := told.get("ramp_up_strategy")) is not None:
        raise ValueError(f"ramp_up_strategy: is {ramp!r}; expected one rate, or none, for all")
    rate, most = told.get("request_rate"), places(told.get("max_concurrency"), "max_concurrency")
    burstiness = float(told.get("burstiness") or 1.0)
    if rate in (None, "inf") or math.isinf(float(rate)):
        return Load("closed", concurrency=most or requests)
    if burstiness == 1.0:
        return Load("poisson", most, float(rate))
    if math.isinf(burstiness):
        return Load("constant", most, float(rate))
    return Load("gamma", most, float(rate), burstiness)


def _due(told: Mapping[str, Any], requests: Sequence[ForeignRequest]) -> list[float | None]:
    """When each request was made, which with a rate or a trace is when it was due; none where the
    file does not say."""
    waits = told.get("queue_times")  # between a request's making and its sending, vLLM 0.32
    if not isinstance(waits, list) or len(waits) != len(requests):
        return []
    pairs = zip(requests, waits, strict=True)
    return [None if r.error else r.sent_s - seconds(wait, "queue_times") for r, wait in pairs]


def _is_schedule(due: Sequence[float | None], requests: Sequence[ForeignRequest]) -> bool:
    """Whether it is a trace with times of its own (`timed_trace`), which the file does not say:
    without times vLLM makes all requests before it sends the first one."""
    first = min((one.sent_s for one in requests if one.error is None), default=math.inf)
    return any(at is not None and at > first for at in due)


def _doubts(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Of a file that `export` wrote, why its trial is not valid, whatever it was compared with."""
    listed = part(told, "decodebench").get("validity", [])
    if not isinstance(listed, list) or not all(isinstance(reason, str) for reason in listed):
        raise ValueError("decodebench.validity: expected a list of reasons, each a text")
    return tuple(" ".join(r.split()) for r in listed if slug(r) not in NOT_CARRIED)


def _date(told: Mapping[str, Any]) -> str:
    try:
        found = datetime.strptime(str(told.get("date")), DATE)
    except ValueError:
        return "1970-01-01T00:00:00+00:00"
    return found.replace(tzinfo=UTC).isoformat(timespec="seconds")
