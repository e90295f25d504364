"""What `aiperf profile` wrote (AIPerf 0.13): in its folder of artifacts `profile_export.jsonl` has
a line for each request, and `profile_export_aiperf.json` how it was asked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.nouns import Load
from results.imports.foreign import NS, ForeignLoad, ForeignRequest
from results.imports.told import one_line, part, places, read_lines, read_object, seconds, tokens

TOOL = "aiperf"
DEFINITIONS = (
    "measured by AIPerf: where it has a rate or a schedule latencies count from when it let a "
    "request go, else from its sending; the tokens of a chunk are not told apart"
)
RECORDS, SUFFIX = "profile_export.jsonl", "_aiperf"
AFTER_THE_WAIT = "; requests wait for a place before it lets them go, which is in no latency"
LIMITS = ("concurrency", "prefill_concurrency")
MS = 1e-3
TYPES = ("poisson", "constant", "gamma", "fixed_schedule", "user_centric")
"""Of phases whose requests are due at moments of their own."""
OTHER_UNITS = ("sec", "s", "seconds", "us", "ns")


def is_aiperf(told: Mapping[str, Any]) -> bool:
    """Whether an object is such a tool's summary."""
    return "input_config" in told


def read_aiperf(path: Path) -> list[ForeignLoad]:
    """The loads in a folder of artifacts, of which one of the two files may be named: one of each
    phase that was measured. Raises `UserError` for a folder without a line for each request, and
    where nothing says how it was asked."""
    records, summary = _files(path)
    asked = part(read_object(summary), "input_config")
    phases = _phases(asked)
    found: dict[str, list[tuple[int, ForeignRequest]]] = {}
    for number, line in enumerate(read_lines(records), start=1):
        about = part(line, "metadata")
        if about.get("benchmark_phase", "profiling") != "profiling":
            continue
        try:
            name = _phase_name(about, phases)
            place = about.get("session_num") or 0
            found.setdefault(name, []).append((place, _request(line, about)))
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{records}, record {number}: {error}") from None
    if not found:
        raise UserError(f"{records}: no requests in it")
    return [_of_phase(asked, phases[name], found[name]) for name in phases if name in found]


def _files(path: Path) -> tuple[Path, Path]:
    """The one with a line for each request and its summary, whatever `--profile-export-prefix`."""
    records = path / RECORDS if path.is_dir() else path
    if records.suffix == ".json":
        records = path.with_suffix(".jsonl")
        if not records.is_file():
            records = path.with_name(f"{path.stem.removesuffix(SUFFIX)}.jsonl")
    if not records.is_file():
        raise UserError(
            f"{records}: missing; expected what 'aiperf profile --export-level records' writes (of "
            "--profile-export-prefix X the file X.jsonl)"
        )
    names = (f"{records.stem}{SUFFIX}.json", f"{records.stem}.json")
    for name in names:
        if (summary := records.with_name(name)).is_file():
            return records, summary
    raise UserError(
        f"{records}: nothing beside it says how it was asked; expected AIPerf's summary, "
        f"{' or '.join(names)}"
    )


def _of_phase(
    asked: Mapping[str, Any],
    phase: Mapping[str, Any],
    found: Sequence[tuple[int, ForeignRequest]],
) -> ForeignLoad:
    requests = [one for _, one in sorted(found, key=lambda pair: (pair[0], pair[1].sent_s))]
    begun = min(one.sent_s for one in requests)
    load = _load(phase, requests)
    if load.kind == "closed":  # a place that is free is no moment at which a request is due
        requests = [replace(one, due_s=None) for one in requests]
    limited = any(phase.get(name) for name in LIMITS)
    return ForeignLoad(
        TOOL,
        DEFINITIONS + AFTER_THE_WAIT * (load.is_open and limited),
        server=str(part(asked, "endpoint").get("type") or "unknown"),
        model=_model(asked),
        load=load,
        started_at=datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"),
        requests=tuple(requests),
    )


def _phases(asked: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What was measured, by the phases' names."""
    phases = asked.get("phases")
    told = [phase for phase in phases if isinstance(phase, dict)] if phases else []
    measured = [one for one in told if (one.get("kind") or one.get("name")) == "profiling"]
    named: dict[str, Mapping[str, Any]] = {str(one.get("name")): one for one in measured}
    if len(named) < len(measured):
        raise ValueError("input_config.phases: two have one name; expected a name for each")
    if not named:
        has = f"has {', '.join(map(repr, asked)) or 'nothing'}"
        raise ValueError(
            f"input_config: {has:.200}; expected 'phases' with one of kind 'profiling'"
        )
    return named


def _phase_name(about: Mapping[str, Any], phases: Mapping[str, Any]) -> str:
    """Of the phases that were measured, a request's."""
    if len(phases) == 1:
        return next(iter(phases))
    name = about.get("phase_name")
    if name not in phases:
        raise ValueError(f"phase_name: is {name!r}; expected one of {', '.join(phases)}")
    return str(name)


def _request(line: Mapping[str, Any], about: Mapping[str, Any]) -> ForeignRequest:
    metrics = part(line, "metrics")
    sent = seconds(about.get("request_start_ns"), "request_start_ns") / NS
    prompt = _value(metrics, "input_sequence_length", _value(metrics, "error_isl", 0))
    error = line.get("error")
    if error or about.get("was_cancelled"):
        said = error.get("message") if isinstance(error, Mapping) else error
        return ForeignRequest(int(prompt), sent, (), 0, one_line(said, "it was cancelled"))
    latency = seconds(_value(metrics, "request_latency", None), "request_latency") * MS
    first = _value(metrics, "time_to_first_token", None)
    begin = sent + (latency if first is None else seconds(first, "time_to_first_token") * MS)
    gaps = _value(metrics, "inter_chunk_latency", [])
    gaps = [seconds(gap, "inter_chunk_latency") * MS for gap in gaps]
    count = tokens(_value(metrics, "output_sequence_length", None), "output_sequence_length")
    if not count:
        return ForeignRequest(int(prompt), sent, (), 0, "no token came")
    cached = _value(metrics, "usage_prompt_cache_read_tokens", None)
    issued = about.get("credit_issued_ns")
    return ForeignRequest(
        tokens(prompt, "input_sequence_length"),
        sent,
        tuple(itertools.accumulate([begin, *gaps])),
        count,
        due_s=None if issued is None else seconds(issued, "credit_issued_ns") / NS,
        cached_tokens=None if cached is None else tokens(cached, "usage_prompt_cache_read_tokens"),
    )


def _value(metrics: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """Of a metric with its unit, the value."""
    found = part(metrics, name)
    if (unit := found.get("unit")) in OTHER_UNITS:
        raise ValueError(f"{name}: is in {unit!r}; expected ms, as AIPerf 0.13 writes it")
    return found.get("value", otherwise)


def _model(asked: Mapping[str, Any]) -> str:
    items = part(asked, "models").get("items")
    first = items[0] if isinstance(items, list) and items else {}
    return str(part({"first": first}, "first").get("name") or "unknown")


def _load(phase: Mapping[str, Any], requests: Sequence[ForeignRequest]) -> Load:
    """Of a phase that was measured. Rates that change are arrivals of their own, as a replay's."""
    kind, rate = phase.get("type"), phase.get("rate")
    most = places(phase.get("concurrency"), "phases.concurrency")
    if kind == "concurrency":
        return Load("closed", concurrency=most or 1)  # its default, which is not written
    if phase.get("rate_ramp"):
        rate = None
    if rate is not None and kind in ("poisson", "constant"):
        return Load(kind, most, float(rate))
    if rate is not None and kind == "gamma":
        return Load("gamma", most, float(rate), float(phase.get("smoothness") or 1.0))
    if kind not in TYPES:
        expected = ", ".join(("concurrency", *TYPES))
        raise ValueError(f"phases: one is of type {kind!r}; expected one of {expected}")
    if any(one.due_s is None for one in requests if one.error is None):
        raise ValueError(f"credit_issued_ns: missing; a phase of type '{kind}' needs it")
    return Load("trace", most, trace=kind)
