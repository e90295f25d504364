"""The command ``quick``: an experiment from the command line, without a file."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.repeats.options import AgainShare, Fresh, RetryFailures
from harness.core.errors import SOME_FAILED, UserError, nearest

if TYPE_CHECKING:
    from harness.experiment.config import Experiment

DIGEST = 8
"""Hexadecimal digits."""
WHERE = "quick"
REFERENCES = ("vllm", "autoregressive", "classifier")
"""What is compared with, the first that is there."""
NOT_BY_ITSELF = ("http", "scripted")
"""Backends that are run only when they are named."""
LIBRARIES = (("vllm", "vllm"), ("", "torch"))
"""By the beginning of a backend's name, the library without which it cannot run."""
DRAFTS_BY_TEXT = {"speculative": "prompt_lookup", "vllm-speculative": "ngram"}
"""By backend, the method for models for which no draft model is bundled: it needs none."""

CACHING: Mapping[str, bool | str] = {"true": True, "none": "none"}
OF_SERVERS: Mapping[str, str] = {
    "api": "--api",
    "prefix_caching": "--prefix-caching",
    "api_key_env": "--api-key-env",
    "model": "--served-model",
}
"""By option of the backend the one here that says it."""
ADDS = ("repeats", "quality_requests")


def quick(
    model: Annotated[str, typer.Option(help="A bundled name, a hub id or a folder.")],
    workload: Annotated[
        list[str],
        typer.Option(
            help="Names, by commas; NAME:SOURCE for the hub or a file; or a prompts file."
        ),
    ],
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="Names, by commas; by default all that run the model here. Those that speculate "
            "draft from the text on a model of your own."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Address of one server, with /v1; engines beside it as --backend."),
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="The server's: completions or chat; by default completions.")
    ] = None,
    prefix_caching: Annotated[
        str | None,
        typer.Option(
            metavar="true|none",
            help="Of the server at --url, if it cannot tell: true, shared prompt beginnings are "
            "meant to be reused; none, they never are.",
        ),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Name of the variable that holds the server's API key.")
    ] = None,
    served_model: Annotated[
        str | None,
        typer.Option(help="The model's name there, where it is another and several are served."),
    ] = None,
    concurrency: Annotated[
        list[str] | None, typer.Option(help="Requests in flight, by commas; by default 1,8.")
    ] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help="Requests per second (Poisson), by commas.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Rates from idle to saturation, found for each.")
    ] = False,
    requests: Annotated[int, typer.Option(help="Prompts in each trial.")] = 64,
    quality_requests: Annotated[
        int | None, typer.Option(help="Prompts whose answers are judged: more than are timed.")
    ] = None,
    duration_s: Annotated[
        float | None, typer.Option("--duration", help="Seconds of each load.")
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Length of an answer.")] = None,
    repeats: Annotated[int, typer.Option(help="How often each trial is run.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/quick-... by default.")] = None,
    fresh: Fresh = False,
    retry_failures: RetryFailures = False,
    again_share: AgainShare = 0.1,
    dry_run: Annotated[bool, typer.Option(help="Check everything, list the trials, stop.")] = False,
) -> None:
    """Compare backends, and a server, on a workload, without an experiment file.

    What takes several by commas may stand several times instead."""
    from harness.cli import run as running

    told = {
        "api": api,
        "prefix_caching": prefix_caching,
        "api_key_env": api_key_env,
        "model": served_model,
    }
    content: dict[str, Any] = {
        "model": model,
        "backends": list(_backends(backend, url, told)),
        "workloads": [_workload(name) for name in _parts(workload, "--workload")],
        "load": list(_loads(concurrency, rate, sweep, duration_s is None)),
        "requests": requests,
        "duration_s": duration_s,
        "quality_requests": quality_requests,
        "max_new_tokens": max_new_tokens,
        "repeats": repeats,
    }
    outcome = running.run_parsed(
        _parsed(model, ",".join(workload), content),
        out=out,
        fresh=fresh,
        dry_run=dry_run,
        again_share=again_share,
        retry_failures=retry_failures,
    )
    if outcome is not None and outcome.failed:
        raise typer.Exit(SOME_FAILED)


def _parsed(model: str, workload: str, content: dict[str, Any]) -> Experiment:
    """The experiment of what was asked, with all that runs the model where no backend was."""
    from harness.cli import wiring
    from harness.experiment.config import parse_experiment

    if content["backends"]:
        content["backends"] = [_suited(entry, model) for entry in content["backends"]]
    else:
        content["backends"] = _all_that_run(model, content["workloads"][0])
    for entry in content["backends"]:
        if "method" in entry:
            told = "for this model no draft model is bundled"
            print(f"{entry['name']}: method {entry['method']}, as {told}", file=sys.stderr)
    names = [entry["name"] for entry in content["backends"]]
    content["reference"] = next((name for name in REFERENCES if name in names), names[0])
    # checked first: a digest is of numbers that are some
    parse_experiment({**content, "name": "quick"}, WHERE, wiring.known())
    content["name"] = _name(model, workload, content)
    return parse_experiment(content, WHERE, wiring.known())


def _name(model: str, workload: str, content: Mapping[str, Any]) -> str:
    """A run folder's name: what is read easily, and a digest of all that decides the trials.
    What `ADDS` names does not: more of it goes on with what is there."""
    from harness.core.nouns import canonical_json

    decides = {key: value for key, value in content.items() if key not in ADDS}
    digest = hashlib.sha256(canonical_json(decides).encode()).hexdigest()[:DIGEST]
    return f"quick-{_slug(model)}-{_slug(workload)}-{digest}"


def _parts(said: Sequence[str], option: str) -> list[str]:
    text = ",".join(said)
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise UserError(f"{WHERE}: {option}: expected names or numbers by commas, got '{text}'")
    return found


def _backends(
    names: Sequence[str] | None, url: str | None, told: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    """`told`: by the keys of `OF_SERVERS`, what is said of the one at `url`."""
    for name in _parts(names, "--backend") if names else ():
        if name != "http":
            yield {"name": name}
        elif url is None:
            raise UserError(f"{WHERE}: --backend http: a server needs its address: --url")
    said: dict[str, Any] = {key: value for key, value in told.items() if value is not None}
    if (caching := said.get("prefix_caching")) is not None:
        if caching not in CACHING:
            raise UserError(f"{WHERE}: --prefix-caching: {nearest(caching, CACHING)}")
        said["prefix_caching"] = CACHING[caching]
    if url is not None:
        yield {"name": "http", "base_url": url, "api": "completions", **said}
    elif said:
        option = OF_SERVERS[next(iter(said))]
        raise UserError(f"{WHERE}: {option}: is of a server; expected --url beside it")


def _workload(text: str) -> str | dict[str, str]:
    """A name, NAME:SOURCE, or the path of a file with prompts."""
    import workloads
    from workloads.readers import SUFFIXES

    if text.lower().endswith(SUFFIXES) and ":" not in text:
        return {"name": "jsonl", "source": text}
    name, colon, source = text.partition(":")
    if colon and not source:
        raise UserError(f"{WHERE}: --workload {text}: expected a source after '{name}:'")
    if name not in workloads.measurable():
        known = nearest(name, workloads.measurable())
        raise UserError(f"{WHERE}: --workload: unknown workload '{name}'; {known}")
    return {"name": name, "source": source} if colon else name


def _loads(
    concurrency: Sequence[str] | None, rate: Sequence[str] | None, sweep: bool, redraw: bool
) -> Iterator[dict[str, Any]]:
    if not (concurrency or rate or sweep):
        concurrency = ("1,8",)
    if sweep:
        yield {"kind": "sweep", "redraw": True}
    if concurrency:
        yield {"kind": "closed", "concurrency": _numbers(concurrency, "--concurrency", int)}
    if rate:
        yield {"kind": "poisson", "rate": _numbers(rate, "--rate", float), "redraw": redraw}


def _numbers(said: Sequence[str], option: str, kind: type[int] | type[float]) -> list[Any]:
    try:
        return [kind(part) for part in _parts(said, option)]
    except ValueError:
        what, got = "whole numbers" if kind is int else "numbers", ",".join(said)
        raise UserError(f"{WHERE}: {option}: expected {what} by commas, got '{got}'") from None


def _all_that_run(model: str, workload: str | dict[str, str]) -> list[dict[str, Any]]:
    """Every backend that takes the model as it is and answers with what the workload asks for; of
    the others of those why not is said."""
    import backends
    import workloads
    from backends.checkpoints import models
    from harness.core.nouns import Model
    from harness.measure.sweep import by_backend

    models.resolve(Model(model), weights=False)  # a model that is not there is no backend's fault
    found, reasons = [], []
    asked = workload if isinstance(workload, str) else workload["name"]
    answer = workloads.workload_info(asked).answer
    for name in backends.BACKENDS:
        if name in NOT_BY_ITSELF or backends.answers_with(name) != answer:
            continue
        try:
            _check_library(name)
            entry = _suited({"name": name}, model)
            backends.warnings(name, Model(model), {k: v for k, v in entry.items() if k != "name"})
            found.append(entry)
        except UserError as error:
            reasons.append(by_backend(name, error))
    if not found:
        raise UserError(f"{WHERE}: no backend runs the model '{model}': {'; '.join(reasons)}")
    for reason in reasons:
        print(f"left out: {reason}", file=sys.stderr)
    return sorted(found, key=lambda one: _rank(one["name"]))


def _suited(entry: dict[str, Any], model: str) -> dict[str, Any]:
    """A backend with what it needs on a model for which nothing is bundled. Raises `UserError`."""
    import backends
    from backends.checkpoints import models
    from harness.core.nouns import Model

    name = entry["name"]
    if name not in ("adadecode", *DRAFTS_BY_TEXT):
        return entry
    if models.is_demo(models.resolve(Model(model), weights=False)):
        return entry
    if name == "adadecode":
        backends.warnings(name, Model(model), {"heads": "original"})  # it may take none at all
        raise UserError(
            f"backend '{name}': for this model no heads are bundled; an experiment file names some "
            "that 'decodebench train heads' made, quick does not"
        )
    return entry | {"method": DRAFTS_BY_TEXT[name]}


def _check_library(backend: str) -> None:
    for begin, library in LIBRARIES:
        if backend.startswith(begin) and importlib.util.find_spec(library) is None:
            raise UserError(f"{library} is not installed")


def _rank(name: str) -> tuple[int, str]:
    """The references first."""
    return (REFERENCES.index(name) if name in REFERENCES else len(REFERENCES), name)


def _slug(text: str) -> str:
    """A part of a folder's name: of a path its last part."""
    parts: Sequence[str] = [Path(part).name for part in text.split(",")]
    return re.sub(r"[^\w.-]+", "-", "-".join(parts)).strip("-.")[:40] or "x"
