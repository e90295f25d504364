"""Writes DIR/report.html: one file that needs nothing else and loads nothing from anywhere."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from harness.core.errors import UserError
from harness.core.files import write_atomic
from harness.core.nouns import QUALITY_MARGIN, Model
from reports.cells import Overview
from reports.collect import Samples, collect
from reports.numbers import counted
from reports.panels import draw, drawing
from reports.sections import Section, sections
from reports.sections.answers import requests
from reports.sections.answers.forks import Pieces
from reports.sections.exits.forecasts import LAST_VALUE, NextWindow
from reports.sections.searched import without_probes
from reports.sections.speed import stored_sizes
from reports.text import script_json, visible
from reports.words import facts
from reports.words.definitions import definitions
from reports.words.ranking.curves import probes_only
from reports.words.ranking.scoped import scoped_verdicts
from reports.words.scale import banner
from results import load
from results.compare.quality import only_quality, without_quality

if TYPE_CHECKING:
    import jinja2

    from results import Run

_SCRIPTS = ("address.js", "downloads.js", "page.js")
_HERE = Path(__file__).parent
CSS = _HERE / "page.css"
FILE_NAME = "report.html"
META = "decodebench-run"
"""Name of the meta element in which a report says in short what is in it, as JSON."""
_TICK_NS = 20_000_000
"""A file system's clock may be so far behind: it goes in the kernel's ticks."""
Tokens = Callable[[Model], Pieces | None]
"""What tells the text of a model's token ids, where somebody knows it."""
BackendTexts = Callable[[str], str]
"""What a backend is, in a sentence or two; empty where nobody knows."""


def write_report(
    run_dir: Path,
    tokens: Tokens = lambda _: None,
    next_window: NextWindow = LAST_VALUE,
    window_s: float | None = None,
    told: BackendTexts = lambda _: "",
    out: Path | None = None,
    damaged: Callable[[UserError], None] = lambda _: None,
) -> Path:
    """Write the report of the run stored in `run_dir` and return its path: `out`, or
    ``run_dir/report.html``. `tokens`: without it, tokens are shown as ids. `next_window`: forecasts
    survival; `window_s`: how long the windows are that it is counted in, where that is not left to
    the run's length. `told`: says what a backend is. `damaged`: is told of each broken record; the
    page says so too.

    The file is replaced in one step and has the time before the run was read, so that a trial that
    is stored meanwhile is newer; equal results give equal bytes. Raises `UserError` when the folder
    is no results folder or holds no trial, and `OSError` when it cannot be written to.
    """
    began_ns = time.time_ns() - _TICK_NS
    run = load(run_dir, damaged, every_byte=True)
    if not without_quality(run).stored:
        if run.left_out:
            raise UserError(run.left_out[0])
        raise UserError(f"{run_dir}: no trials in it; expected a folder that 'run' has filled")
    target = run_dir / FILE_NAME if out is None else out
    write_atomic(target, render(run, tokens, next_window, window_s, told).encode())
    os.utime(target, ns=(began_ns, began_ns))
    return target


def render(
    run: Run,
    tokens: Tokens = lambda _: None,
    next_window: NextWindow = LAST_VALUE,
    window_s: float | None = None,
    told: BackendTexts = lambda _: "",
) -> str:
    """The whole page as text. Raises `UserError` where a run replaces trials meanwhile."""
    more = only_quality(run)
    run, seen = without_probes(without_quality(run))
    shown = len(run.stored)
    samples = collect(run, seen, more, next_window, window_s) if seen.cells else Samples()
    if run.left_out and len(run.stored) < max(shown, 1):  # parts of the page would differ
        raise UserError(run.left_out[-1])
    made = list(sections(seen, samples))
    numbers = {section.id: itertools.count() for section in made}
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    blocks, data = _requests(run, seen, samples, tokens)
    words = _words(run, seen, samples, made)
    context: dict[str, Any] = {
        **words,
        "meta": META,
        "about": _about(run, words),
        "variants": seen.variants,
        "filters": facts.filters(seen),
        "sections": made,
        "larger": next((one.id for one in made if one.id == stored_sizes.ID), None),
        "larger_at": stored_sizes.on_larger(seen),
        "svg": lambda panel, of: draw(panel, f"{of}{next(numbers[of])}-"),
        "contents": _contents(made, bool(seen.cells)),
        "answers_due": bool(seen.cells),
        "requests": blocks,
        "request_data": script_json(data),
        **_behind(run, seen, made, blocks, told),
        "version": importlib.metadata.version("decodebench"),
        "css": Markup(CSS.read_text(encoding="utf-8")),
        "script": Markup(script),
        "script_hash": script_hash(script),
    }
    with drawing():
        return template("page.html.j2").render(context)


def _behind(
    run: Run,
    seen: Overview,
    made: Sequence[Section],
    blocks: Sequence[Mapping[str, Any]],
    told: BackendTexts,
) -> dict[str, Any]:
    """What stands behind the sections."""
    backends = {v.backend: text for v in seen.variants if (text := told(v.backend))}
    shown = [*seen.cells, *stored_sizes.cells(seen)]
    terms = definitions([cell.metrics for cell in shown], backends, made)
    return {
        "requests_note": facts.requests_note(blocks),
        "requests_finding": facts.requests_finding(blocks),
        "environment": facts.environment(run),
        "environment_finding": facts.machine(run).partition(": ")[2],
        "definitions": terms,
        "definitions_finding": f"{counted(len(terms), 'term')}.",
    }


def script_hash(script: str) -> str:
    """The Content-Security-Policy source that lets exactly this inline script run."""
    digest = hashlib.sha256(script.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


@functools.cache
def template(name: str) -> jinja2.Template:
    """One of the pages, which escapes what is put into it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def _words(run: Run, seen: Overview, samples: Samples, made: Sequence[Section]) -> dict[str, Any]:
    margin = run.experiment.get("quality_margin", QUALITY_MARGIN)
    found = scoped_verdicts(seen, samples, margin) if seen.cells else []
    headline, trust = probes_only(seen, made)
    if found:
        headline, trust = found[0].headline, found[0].trust
    return {
        "name": visible(str(run.experiment.get("name") or run.path.resolve().name)),
        "summary": facts.summary(run, seen),
        "banner": banner(run),
        "alerts": [*_left_out(run), *(facts.alerts(run, seen) if seen.cells else [])],
        "headline": headline,
        "trust": trust,
        "scopes": found,
    }


def _left_out(run: Run) -> list[str]:
    """That the page is not of all that is stored, and why."""
    if not run.left_out:
        return []
    count, why = len(run.left_out), run.left_out[0].removeprefix(f"{run.path}/")
    more = "the first" if count > 1 else "why"
    return [
        f"Left out: {counted(count, 'stored trial')} that cannot be read ({more}: {visible(why)})."
    ]


def _about(run: Run, words: Mapping[str, Any]) -> str:
    """What an index over runs says of this one."""
    started = min((s.record.started_at for s in run.stored if s.record.started_at), default="")
    chosen = [
        {
            "model": model,
            "load": row.load,
            "words": row.load_words,
            "name": row.name,
            "speed": row.speed,
            "interval": row.interval,
        }
        for scope in words["scopes"][:1]
        for model, rows in scope.choices
        for row in rows
    ]
    plain = {key: words[key] for key in ("name", "summary", "banner", "headline", "trust")}
    return json.dumps({**plain, "started": started[:16].replace("T", " "), "choices": chosen})


def _contents(made: Sequence[Section], answers_due: bool) -> list[tuple[str, str]]:
    own = [(section.id, section.short or section.title) for section in made]
    answers = [("requests", "Answers")] if answers_due else []
    last = [("environment", "Environment"), ("definitions", "Definitions")]
    return [("verdict", "Verdict"), *own, *answers, *last]


def _margins(run: Run, seen: Overview, place: tuple[str, str]) -> dict[tuple[str, int], float]:
    """Where answers of this workload and part of the run leave the reference's, and how sure that
    was there."""
    groups = {cell.group for cell in seen.cells if (cell.workload, cell.apart) == place}
    return {
        (fork["request"], fork["token"]): fork["margin"]
        for one in run.evaluated["texts"]
        if one["group"] in groups and one["against"] == run.experiment.get("reference")
        for fork in one["evidence"]["forks"]
        if fork["margin"] is not None
    }


def _model(run: Run, seen: Overview, workload: str) -> Model:
    """The one whose answers to this workload are shown together."""
    key = next(cell.keys[0] for cell in seen.cells if cell.workload == workload)
    return next(s.record.trial.model for s in run.stored if s.record.key == key)


def _requests(
    run: Run, seen: Overview, samples: Samples, tokens: Tokens
) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """Blocks of requests for the template, and the rest of the requests as data for the script."""
    blocks, waiting = [], []
    prompts = facts.prompts_by_workload(run, seen) if seen.cells else {}
    places = dict.fromkeys((cell.workload, cell.apart) for cell in seen.cells)
    for number, place in enumerate(one for one in places if one in samples.answers):
        workload = place[0]
        shown, total, differing = requests.items(
            samples.answers[place],
            prompts.get(workload, {}),
            seen.variants,
            _margins(run, seen, place),
            tokens(_model(run, seen, workload)),
        )
        element = f"requests-{number}"
        later = shown[requests.STATIC :]
        note = f"{counted(total, 'request')}, {differing:,} with differing answers"
        if without := samples.answers[place].without:
            note += f", {without:,} without an answer"
        if total > len(shown):
            note += f"; {len(shown)} shown, {total - len(shown):,} left out"
        blocks.append(
            {
                "workload": workload,
                "title": ", ".join(filter(None, place)),
                "note": note,
                "total": total,
                "differing": differing,
                "without": without,
                "element": element,
                "shown": shown[: requests.STATIC],
                "waiting": len(later),
                "left_out": total - len(shown),
            }
        )
        waiting.append({"element": element, "items": [item.to_json() for item in later]})
    variants = [{"slot": v.slot, "label": v.label} for v in seen.variants]
    return blocks, {"variants": variants, "workloads": waiting}
