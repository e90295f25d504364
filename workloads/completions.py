"""Makes a program of a HumanEval prompt and a model's answer, as base and chat models give them.

An answer goes on with the prompt's function body, or holds the whole function, with or without a
fenced block around it. What follows the function is cut off: a model that does not stop there goes
on with examples, tests or the next exercise, and breaks off in the middle of a line.
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_CLOSING = re.compile(r"[)\]}]")
_TRIPLE_QUOTE = re.compile(r"\"{3}|'{3}")
_OPENS = re.compile(r"[:,(\[{\\]\s*$")
_NOT_BODY = re.compile(r"(?:def|class|print|if\s+__name__|assert)\b|@|```")
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's compiler raises for text that is no program it could run."""


def complete_program(prompt: str, entry_point: str, text: str) -> str:
    """The program: the prompt, completed by the answer.

    An answer that begins with a function body is that body, whatever follows it. Else the first
    fenced block with a definition of the function counts, and without one the text's first. Such a
    whole function is put after the prompt and replaces the stub there, so that the prompt's imports
    and helper functions serve it. With it are kept the imports, functions, classes and assignments
    that it needs, if they stand before it or in its closed fenced block; no other statement runs.

    Args:
        prompt: the row's prompt: imports, helpers, a signature and a docstring.
        entry_point: the name of the function to complete.
        text: the model's answer.

    Returns:
        Source text, which need not be valid Python when the answer is not.
    """
    text = re.sub(r"\r\n?", "\n", text)
    indent = _body_indent(prompt, entry_point)
    body = _body(text, indent)
    if _returns(body):
        return prompt + body
    definition = re.compile(rf"^(?:async\s+)?def\s+{re.escape(entry_point)}\s*\(", re.MULTILINE)
    blocks = _fenced_blocks(text)
    for source, closed in [
        *((_outdented(block), closed) for block, closed in blocks),
        (text, False),
    ]:
        if definition.search(source):
            future, whole = _whole_function(source, entry_point, definition, keep_rest=closed)
            return f"{future}{stub(prompt, entry_point)}\n{whole}"
    bodies = [_body(block, indent) for block, _ in blocks if block.strip()] or [body]
    return prompt + next(filter(_returns, bodies), bodies[0])


def stub(prompt: str, entry_point: str) -> str:
    """The prompt as a program of its own: the function to complete returns None."""
    return f"{prompt}\n{_body_indent(prompt, entry_point)}pass\n"


def _fenced_blocks(text: str) -> list[tuple[str, bool]]:
    """The contents of fenced blocks, and whether each was closed."""
    return [(match[1], match[0].rstrip().endswith("```")) for match in _FENCE.finditer(text)]


def _outdented(block: str) -> str:
    """Without the indent of its first line, which a block in a list has throughout."""
    have = _indent_of(block.lstrip("\n").partition("\n")[0])
    return "\n".join(line[min(have, _indent_of(line)) :] for line in block.split("\n"))


def _body_indent(prompt: str, entry_point: str) -> str:
    """How far the prompt's function body is indented: as far as its docstring."""
    tail = prompt[prompt.rfind(f"def {entry_point}") :]
    match = re.search(r"^([ \t]+)[rRuU]?(?:\"\"\"|''')", tail, re.MULTILINE)
    return match[1] if match else "    "


def _begins_statement(lines: Sequence[str]) -> Iterator[bool]:
    """For each line, whether a top-level statement, or a fence, begins there: outside strings, not
    indented, no comment."""
    quote = ""
    for line in lines:
        inside = not line.strip() or line[0].isspace() or line[0] == "#"
        fence = line.lstrip().startswith("```")
        yield not quote and (fence or not (inside or _CLOSING.match(line)))
        for mark in _TRIPLE_QUOTE.findall(line):
            quote = mark if not quote else "" if mark == quote else quote


@dataclass(frozen=True, slots=True)
class _Statement:
    text: str
    binds: frozenset[str]
    """Names that it defines; none where it does more than to define."""
    needs: frozenset[str]
    """Names that are looked up in it."""


def _whole_function(
    source: str, name: str, definition: re.Pattern[str], *, keep_rest: bool
) -> tuple[str, str]:
    """The imports from `__future__`, which stand first in a program, and the function with what it
    needs."""
    future, held = "", list[_Statement]()
    for text in _statements(source):
        found = _statement(text)
        if "__future__" in found.needs:
            future += text
            continue
        held.append(found)
        if not keep_rest and (name in found.binds or definition.match(text)):
            break
    needed = {name, "*"}
    while more := {n for s in held if s.binds & needed for n in s.needs} - needed:
        needed |= more
    return future, "".join(s.text for s in held if s.binds & needed)


def _statements(source: str) -> Iterator[str]:
    """Top-level statements as text: of a program as Python reads it, of a text with prose as its
    lines look."""
    lines = source.split("\n")
    try:
        begins = [False] * len(lines)
        for node in _parsed(source).body:
            first = [node, *getattr(node, "decorator_list", [])]
            begins[min(part.lineno for part in first) - 1] = True
    except _UNREADABLE:
        begins = list(_begins_statement(lines))
        for number in range(1, len(lines)):
            begins[number] &= not (begins[number - 1] and lines[number - 1].startswith("@"))
    starts = [number for number, begin in enumerate(begins) if begin]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        yield "\n".join(lines[start:end]) + "\n"


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(source)


def _statement(text: str) -> _Statement:
    """A statement, with no name where it is broken, or no definition of any kind."""
    try:
        tree = _parsed(text)
        with warnings.catch_warnings(action="ignore"):
            needs = _names(compile(tree, "<answer>", "exec", dont_inherit=True))
    except _UNREADABLE:
        return _Statement(text, frozenset(), frozenset())
    bound = [_bound(node) for node in tree.body]
    return _Statement(text, frozenset().union(*bound) if all(bound) else frozenset(), needs)


def _bound(node: ast.stmt) -> frozenset[str]:
    """The names that an import, a function, a class or an assignment defines or changes."""
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return frozenset((a.asname or a.name).partition(".")[0] for a in names)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return frozenset({name})
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            targets = [target]
        case _:
            return frozenset()
    parts = (part for target in targets for part in ast.walk(target))
    return frozenset(part.id for part in parts if isinstance(part, ast.Name))


def _names(code: CodeType) -> frozenset[str]:
    """Names that code looks up outside itself, and attributes; local variables are none."""
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return frozenset(code.co_names).union(*inner)


def _returns(body: str) -> bool:
    """Whether an indented text is a function body that returns something."""
    try:
        held = _parsed(f"def f():\n{body}").body[0]
    except _UNREADABLE:
        return False
    nodes: list[ast.AST] = list(ast.iter_child_nodes(held))
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return False


def _body(text: str, indent: str) -> str:
    """The answer as a function body, indented as the prompt's is, cut at the function's end."""
    lines = list(itertools.dropwhile(lambda line: not line.strip(), text.split("\n")))
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
        if begins and kept and (returned or _NOT_BODY.match(line.lstrip())):
            break
        returned = returned or (begins and re.match(r"return\b", line) is not None)
        kept.append(line)
    return kept
