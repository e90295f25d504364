"""What the gate found, for a CI's page (Markdown) and for its list of tests (JUnit XML)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from xml.etree import ElementTree

from harness.cli.gate.shown import cells, headings, named, notes_of, summary
from results.compare.gate.decision import Decision, GateRow

WHOLE = "decodebench compare"
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no place for."""


def as_markdown(decision: Decision) -> str:
    """A heading with the verdict, what is missing, and a table of all rows."""
    names = ("workload", "load", "model", "backend", *headings(decision.alpha))
    rows = [
        (row.cell.workload, row.cell.load, row.cell.model, row.cell.variant(), *cells(row))
        for row in decision.rows
    ]
    sentences = (*decision.missing, *notes_of(decision), *decision.notes)
    lines = [
        f"## {WHOLE}: {_plain(summary(decision))}",
        "",
        f"{_plain(named(decision.base, decision.base_origin))} (BASE) and "
        f"{_plain(named(decision.new, decision.new_origin))} (NEW)",
        "",
        *(f"- {_plain(sentence)}" for sentence in sentences),
        "",
        *map(_line, (names, ("---",) * len(names), *rows)),
    ]
    return "\n".join(lines) + "\n"


def as_junit(decision: Decision) -> bytes:
    """A test case for each row and for all that is missing; an inconclusive row is skipped. One
    for the whole, which fails where nothing else does and yet it does not pass: a CI's page would
    show no failure beside the job that is refused."""
    verdicts = [row.verdict for row in decision.rows]
    refused = decision.verdict == "inconclusive"
    suite = _suite(
        tests=len(verdicts) + len(decision.missing) + 1,
        failures=verdicts.count("fail") + len(decision.missing) + refused,
        skipped=verdicts.count("inconclusive"),
    )
    for row in decision.rows:
        case = _case(suite, row.cell.label(), row.metric)
        if row.verdict != "pass":
            kind = "failure" if row.verdict == "fail" else "skipped"
            ElementTree.SubElement(case, kind, message=_xml(_sentence(row)))
    for sentence in decision.missing:
        case = _case(suite, "missing", sentence)
        ElementTree.SubElement(case, "failure", message=_xml(sentence))
    whole = _case(suite, WHOLE, "verdict")
    if refused:
        ElementTree.SubElement(whole, "failure", message=_xml(summary(decision)))
    return _bytes(suite)


def refusal_as_markdown(why: str) -> str:
    """Of two runs that may not be compared, or cannot be."""
    return f"## {WHOLE}: not compared\n\n{_plain(why)}\n"


def refusal_as_junit(why: str) -> bytes:
    """One test case, with an error."""
    suite = _suite(tests=1, errors=1)
    ElementTree.SubElement(_case(suite, WHOLE, "verdict"), "error", message=_xml(why))
    return _bytes(suite)


def _suite(**counts: int) -> ElementTree.Element:
    told = {name: str(count) for name, count in counts.items()}
    return ElementTree.Element("testsuite", {"name": WHOLE, **told})


def _bytes(suite: ElementTree.Element) -> bytes:
    ElementTree.indent(suite)
    found: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return found


def _case(suite: ElementTree.Element, cell: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=_xml(cell), name=_xml(name))


def _sentence(row: GateRow) -> str:
    _, base, new, worse, interval, margin, seen, verdict = cells(row)
    told = f"{verdict}: {base} to {new}, worse by {worse} ({interval}), margin {margin}"
    return f"{told}, found from {seen}" + (f"; {row.note}" if row.note else "")


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(text) for text in texts) + " |"


def _plain(text: str) -> str:
    """Text that Markdown takes as it is: names come from files that anybody may have written."""
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", html.escape(text, quote=False))
    return " ".join(escaped.split())


def _xml(text: str) -> str:
    return _NO_XML.sub("?", text)
