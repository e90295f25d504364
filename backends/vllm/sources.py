"""What vLLM's source says of its configuration: importing vLLM takes seconds, reading it none."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

from harness.core.errors import UserError


@functools.cache
def fields(module: str, name: str) -> frozenset[str]:
    """The names of the fields of one of vLLM's classes.

    Raises:
        UserError: where vLLM is not installed.
    """
    for node in _parsed(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            found = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            return frozenset(target.id for target in found if isinstance(target, ast.Name))
    raise RuntimeError(f"vllm/{module}: no class {name}")


@functools.cache
def choices(module: str, name: str) -> frozenset[str]:
    """The words of a `Literal` of vLLM, those of the literals that it names included; none where
    there is no such literal.

    Raises:
        UserError: where vLLM is not installed.
    """
    aliases = {
        target.id: node.value
        for node in _parsed(module).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found, waiting = set[str](), [name]
    while waiting:
        value = aliases.pop(waiting.pop(), None)
        for part in [] if value is None else ast.walk(value):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.add(part.value)
            elif isinstance(part, ast.Name):
                waiting.append(part.id)
    return frozenset(found)


@functools.cache
def number(module: str, name: str) -> int | None:
    """A constant of one of vLLM's modules; None where there is no such number.

    Raises:
        UserError: where vLLM is not installed.
    """
    for node in _parsed(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                return value.value
    return None


@functools.cache
def keys(module: str, name: str) -> frozenset[str]:
    """The words that are keys of a `dict` of one of vLLM's modules; none where there is no such.

    Raises:
        UserError: where vLLM is not installed.
    """
    for node in _parsed(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            found = node.value.keys if isinstance(node.value, ast.Dict) else []
            return frozenset(str(key.value) for key in found if isinstance(key, ast.Constant))
    return frozenset()


def _parsed(module: str) -> ast.Module:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise UserError("vllm is not installed; run 'make setup'")
    return ast.parse((Path(spec.origin).parent / module).read_text(encoding="utf-8"))
