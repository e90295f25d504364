"""Makes a program of a HumanEval prompt and a model's answer, as base and chat models give them.

An answer goes on with the prompt's function body, or holds the whole function, with or without a
fenced block around it. What follows the function is cut off: a model that does not stop there goes
on with examples, tests or the next exercise, and breaks off in the middle of a line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_CLOSING = re.compile(r"[)\]}]")
_TRIPLE_QUOTE = re.compile(r"\"{3}|'{3}")
_OPENS = re.compile(r"[:,(\[{\\]\s*$")
_NAMED = re.compile(
    r"(?:import\s+\w|from\s+[\w.]+\s+import\b|(?:async\s+)?def\s|class\s|@|\w+\s*=)"
)
_NOT_BODY = re.compile(r"(?:def|class|print|if\s+__name__|assert)\b|@|##|```")


def complete_program(prompt: str, entry_point: str, text: str) -> str:
    """The program: the prompt, completed by the answer.

    A whole function is put after the prompt and replaces the stub there, so that the prompt's
    imports and helper functions serve it. It is kept up to its end, with the imports, functions,
    classes and assignments before it and, in a closed fenced block, after it.

    Args:
        prompt: the row's prompt: imports, helpers, a signature and a docstring.
        entry_point: the name of the function to complete.
        text: the model's answer.

    Returns:
        Source text, which need not be valid Python when the answer is not.
    """
    definition = re.compile(rf"^(?:async\s+)?def\s+{re.escape(entry_point)}\s*\(", re.MULTILINE)
    blocks = _fenced_blocks(text)
    for block, closed in blocks:
        if definition.search(block):
            whole = _whole_function(block, definition, keep_rest=closed)
            return f"{stub(prompt, entry_point)}\n{whole}"
    if definition.search(text):
        whole = _whole_function(text, definition, keep_rest=False)
        return f"{stub(prompt, entry_point)}\n{whole}"
    return prompt + _body(blocks[0][0] if blocks else text, _body_indent(prompt, entry_point))


def stub(prompt: str, entry_point: str) -> str:
    """The prompt as a program of its own: the function to complete returns None."""
    return f"{prompt}\n{_body_indent(prompt, entry_point)}pass\n"


def _fenced_blocks(text: str) -> list[tuple[str, bool]]:
    """The contents of fenced blocks, and whether each was closed."""
    return [(match[1], match[0].rstrip().endswith("```")) for match in _FENCE.finditer(text)]


def _body_indent(prompt: str, entry_point: str) -> str:
    """How far the prompt's function body is indented: as far as its docstring."""
    tail = prompt[prompt.rfind(f"def {entry_point}") :]
    match = re.search(r"^([ \t]+)[rRuU]?(?:\"\"\"|''')", tail, re.MULTILINE)
    return match[1] if match else "    "


def _begins_statement(lines: list[str]) -> Iterator[bool]:
    """For each line, whether a top-level statement begins there: outside strings, not indented."""
    quote = ""
    for line in lines:
        blank = not line.strip() or line[0].isspace()
        yield not (quote or blank or _CLOSING.match(line))
        for mark in _TRIPLE_QUOTE.findall(line):
            quote = mark if not quote else "" if mark == quote else quote


def _statements(source: str) -> Iterator[str]:
    """Top-level statements as text."""
    lines = source.splitlines(keepends=True)
    held: list[str] = []
    for line, begins in zip(lines, _begins_statement(lines), strict=True):
        if begins and held:
            yield "".join(held)
            held = []
        held.append(line)
    if held:
        yield "".join(held)


def _whole_function(source: str, definition: re.Pattern[str], *, keep_rest: bool) -> str:
    kept: list[str] = []
    for statement in _statements(source):
        if definition.match(statement):
            kept.append(statement)
            if not keep_rest:
                break
        elif _NAMED.match(statement):
            kept.append(statement)
    return "".join(kept)


def _body(text: str, indent: str) -> str:
    """The answer as a function body, indented as the prompt's is, cut at the function's end."""
    lines = list(itertools.dropwhile(lambda line: not line.strip(), text.splitlines()))
    if not lines:
        return text
    lines[0] = lines[0].expandtabs(4) if "\t" not in indent else lines[0]
    have = _indent_of(lines[0])
    next_have = next((_indent_of(line) for line in lines[1:] if line.strip()), len(indent) + 1)
    if have < len(indent) and next_have >= len(indent) + bool(_OPENS.search(lines[0])):
        lines[0] = indent + lines[0].lstrip()
    elif have < len(indent):
        lines = _dedented_body([line[min(have, _indent_of(line)) :] for line in lines])
        lines = [indent + line if line.strip() else "" for line in lines]
    end = next((i for i, begins in enumerate(_begins_statement(lines)) if begins), len(lines))
    return "\n".join(lines[:end]) + "\n"


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def _dedented_body(lines: list[str]) -> list[str]:
    """The part of a body without its indent that belongs to it: up to a return, or what ends it."""
    kept: list[str] = []
    returned = False
    for line, begins in zip(lines, _begins_statement(lines), strict=True):
        if begins and kept and (returned or _NOT_BODY.match(line)):
            break
        returned = returned or (begins and re.match(r"return\b", line) is not None)
        kept.append(line)
    return kept
