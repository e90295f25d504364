"""One page over a folder of runs: what each says, and the way to its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from harness.core.errors import UserError
from harness.core.files import write_atomic
from reports.numbers import counted
from reports.page import CSS, FILE_NAME, META, template, write_report
from reports.text import visible

INDEX_NAME = "index.html"
KEYS = {"name", "summary", "banner", "headline", "trust", "started", "choices"}
_CHUNK = 64 * 1024
"""Characters of a report that are read first: it says of itself what it is at its beginning. Each
further read takes twice as many, since the parser begins a tag that goes on anew."""
_MOST = 4 * 1024 * 1024
"""Characters within which it has to say so."""
_SILENT = f"{FILE_NAME} was written, and does not say what is in it"


class ListedRun(NamedTuple):
    """A line of the index."""

    folder: str
    href: str
    about: Mapping[str, Any]
    """What its report says of itself; empty where there is none."""
    problem: str
    """Why there is no report, in a line; empty where there is one."""


def runs_below(directory: Path) -> list[Path]:
    """The folders in `directory` that `run` wrote; empty where it is itself one of them, or has
    none."""
    if (directory / "experiment.yaml").exists() or not directory.is_dir():
        return []
    return sorted(p.parent for p in directory.glob("*/experiment.yaml") if p.parent.is_dir())


def write_index(
    directory: Path, write: Callable[[Path], Path] = write_report, *, anew: bool = False
) -> Path:
    """Write ``directory/index.html`` over the runs below it, newest first, and return its path.

    Reports that are missing, or older than a trial of their run, are written by `write`; with
    `anew` all of them. A run that none can be made of is listed with the reason. Raises `OSError`
    where the folder is read-only.
    """
    listed = sorted(
        (_listed(run, directory, write, anew) for run in runs_below(directory)),
        key=lambda one: (one.about.get("started", ""), one.folder),
        reverse=True,
    )
    name = visible(directory.resolve().name)
    context = {
        "name": name,
        "runs": listed,
        "lead": counted(len(listed), "run"),
        "css": Markup(CSS.read_text(encoding="utf-8")),
    }
    target = directory / INDEX_NAME
    write_atomic(target, template("index.html.j2").render(context).encode())
    return target


def _listed(run: Path, directory: Path, write: Callable[[Path], Path], anew: bool) -> ListedRun:
    page = run / FILE_NAME
    folder = visible(run.name)
    try:
        about = _about(page) if not anew and _is_current(page, run) else None
        if about is None:
            write(run)
            about = _about(page)
    except UserError as error:
        return ListedRun(folder, "", {}, visible(str(error)))
    if about is None:
        return ListedRun(folder, "", {}, _SILENT)
    return ListedRun(folder, quote(f"{run.relative_to(directory)}/{FILE_NAME}"), about, "")


def _is_current(page: Path, run: Path) -> bool:
    try:
        written = page.stat().st_mtime_ns
    except FileNotFoundError:
        return False
    return all(time < written for time in _times(run))


def _times(run: Path) -> Iterator[int]:
    for path in (run / "experiment.yaml", run / "trials"):
        if path.exists():
            yield path.stat().st_mtime_ns


def _about(page: Path) -> dict[str, Any] | None:
    """What a report says of itself; None of one by a version that did not."""
    reader = _MetaReader()
    with page.open(encoding="utf-8", errors="replace") as file:
        size = _CHUNK
        while not reader.is_done and size <= _MOST // 2 and (text := file.read(size)):
            reader.feed(text)
            size *= 2
    try:
        found = json.loads(reader.content)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() >= KEYS else None


class _MetaReader(HTMLParser):
    content = ""
    is_done = False
    """Whether the tag is read, or the metadata end without it."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag == "meta" and own.get("name") == META:
            self.content = own.get("content") or ""
            self.is_done = True
        self.is_done |= tag in ("style", "body")
