"""Reading a YAML file that somebody else may have written: one clear line for whatever is wrong.
And writing one that everybody reads alike.

PyYAML's safe loader runs no code, but it takes the last of two equal keys in silence, expands
anchors without end, and raises what its constructors happen to meet in odd content.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import yaml

from harness.core.errors import UserError, nearest
from harness.core.files import MIB, read_text

MERGE = "tag:yaml.org,2002:merge"
"""The key ``<<``, which takes over the keys of another mapping."""
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
POWER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]{1,3}$")
"""A number of YAML 1.2; PyYAML wants a point and a sign in it. No float has more digits at its end,
but a commit may."""
BASE_8 = re.compile(r"[-+]?0[0-9_]+")
MAX_BYTES = 2 * MIB
MAX_NODES = 100_000
"""Values and keys of a file with every alias (``*name``) written out."""
MAX_DEPTH = 64
"""Mappings and lists inside one another."""
MAX_DIGITS = 400
"""More than any float has. Base 60 (``1:30:00``) takes time that grows with the square."""
NO_TEXT = re.compile(
    r"[-+]?(0o[0-7]+|0x[0-9a-fA-F]+|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)|[yYnN]"
)
"""Numbers of YAML 1.2, and truth values of 1.1 that PyYAML leaves out."""
WORDS = {
    "<scalar>": "a text or number",
    "<block end>": "the end of this block",
    "<block entry>": "'-'",
    "<block mapping start>": "a mapping",
    "<block sequence start>": "a list",
    "<flow entry>": "','",
    "<key>": "a key",
    "<value>": "':'",
    "<alias>": "an alias (*name)",
    "<anchor>": "an anchor (&name)",
    "<tag>": "a tag (!name)",
    "<directive>": "a directive (%name)",
    "<document start>": "'---'",
    "<document end>": "'...'",
    "<stream end>": "the end of the file",
    "the node content": "a value",
}
"""PyYAML's names of what stands in a file, in the words of who wrote it."""


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, loaded safely. Raises `UserError` naming the file and line."""
    try:
        text = read_text(path, MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {reason.lower()}{_siblings(path)}") from None
    try:
        return _load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: {_problem(error)}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply; at most {MAX_DEPTH} levels") from None


def yaml_text(data: Any) -> str:
    """The data as a YAML file has it, such that every reader takes its texts for texts. PyYAML goes
    by YAML 1.1 and reads `1e3` as a text; editors, which go by 1.2, as a number."""
    return str(yaml.dump(data, Dumper=_QuotingDumper, sort_keys=False, allow_unicode=True))


class _QuotingDumper(yaml.SafeDumper):
    """YAML's safe dumper, with quotes around what a reader of another version would not take for a
    text."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A text."""
        style = "'" if NO_TEXT.fullmatch(data) else None
        if not data.isprintable():  # PyYAML loses Unicode's line ends but where it escapes them
            style = '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_QuotingDumper.add_representer(str, _QuotingDumper.represent_str)


def _load(text: str) -> Any:
    loader = _StrictLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _Expansion().check(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, with bounds and without surprises."""

    _composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node. Raises `yaml.YAMLError` beyond `MAX_NODES`: composing takes its time."""
        self._composed += 1
        if self._composed > MAX_NODES:
            raise _wrong(f"more than {MAX_NODES:,} values, the most that is read", None)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value. Raises `yaml.YAMLError` for one that only looks like a date or a number, and
        for one that its tag does not fit."""
        if node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
            raise _wrong(f"a number of {len(node.value):,} characters; at most {MAX_DIGITS}", node)
        if node.tag in NUMBERS and BASE_8.fullmatch(node.value):
            told = f"{node.value} would be read in base 8"
            raise _wrong(f"{told}; leave the leading 0 out, or put a text in quotes", node)
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except ValueError as error:
            raise _wrong(str(error), node) from None
        except Exception:  # PyYAML's constructors raise what odd content makes them raise
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise _wrong(f"the value does not fit its tag '{tag}'", node) from None

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are all different. Raises `yaml.YAMLError` otherwise."""
        if not isinstance(node, yaml.MappingNode):
            kind = type(node).__name__.removesuffix("Node").lower()
            raise _wrong(f"expected a mapping, but found a {kind}", node)
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise _wrong(f"the key '{key}' stands twice", key_node)
            seen.add(key if isinstance(key, str) else id(key_node))
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(NUMBERS[1], POWER, [*"+-.0123456789"])


class _Expansion:
    """How large a document is with every alias written out. A chain of aliases doubles with each
    link, so sizes are added up and nothing is written out."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def check(self, node: yaml.Node) -> tuple[int, int]:
        """The number of nodes under `node` and itself, and of levels. Raises `yaml.YAMLError` for
        too many of either, and for an alias inside what it stands for."""
        if id(node) in self._known:
            return self._known[id(node)]
        if id(node) in self._open:
            raise _wrong("an alias inside the value that it stands for", node)
        self._open.add(id(node))
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = (part for item in inner for part in (item if isinstance(item, tuple) else (item,)))
        nodes, levels = 1, 0
        for part in parts:
            more, deep = self.check(part)
            nodes, levels = nodes + more, max(levels, deep + 1)
        self._open.remove(id(node))
        if levels > MAX_DEPTH:
            raise _wrong(f"nested too deeply; at most {MAX_DEPTH} levels", node)
        if nodes > MAX_NODES:
            written = "with every alias (*name) written out"
            raise _wrong(f"more than {MAX_NODES:,} values {written}, the most that is read", node)
        self._known[id(node)] = nodes, levels
        return nodes, levels


def _wrong(problem: str, node: yaml.Node | None) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, problem, node.start_mark if node else None)


def _problem(error: yaml.YAMLError) -> str:
    """What is wrong, in one line. PyYAML names its own tokens."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"the character {error.character:#x} at position {error.position} is not allowed"
    problem = getattr(error, "problem", None) or "not valid YAML"
    misplaced = problem.endswith("'<scalar>'") or problem.startswith("expected <block end>")
    for token, words in WORDS.items():
        problem = problem.replace(f"'{token}'", words).replace(token, words)
    hint = "; is a quote, a comma or an indent missing?" if misplaced else ""
    return re.sub(r"\bbut (found|got)\b", "found", problem) + hint


def _siblings(path: Path) -> str:
    """The nearest names of experiment files beside a missing one."""
    if path.exists() or not path.parent.is_dir():
        return ""
    names = [entry.name for entry in path.parent.iterdir() if entry.suffix in {".yaml", ".yml"}]
    if not names:
        return ""
    if difflib.get_close_matches(path.name, names, n=1):
        return f"; {nearest(path.name, names)}"
    return f"; nearest are {', '.join(difflib.get_close_matches(path.name, names, 3, 0.0))}"
