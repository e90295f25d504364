"""The sources that a module runs: the modules of this project that it reaches by imports, each with
a digest of what it says, so that what was measured can be told from what would be measured now.

What counts as reached from a module:

* what it imports anywhere, inside functions too, with the packages that the name goes through
  (``a.b.c`` runs ``a/__init__.py`` and ``a/b/__init__.py``), but for ``if TYPE_CHECKING:``;
* what it names in a text (``"backends.x.y:Name"``, code for a child process): such names are
  imported later, by us or by a library;
* C++ and CUDA files in a folder of which a module is reached: some module there compiles them.

A digest is of the syntax tree, without comments, docstrings, positions and ``if TYPE_CHECKING:``,
so that formatting and comments change nothing. Trees differ between versions of Python, which the
machine's fingerprint holds. Two tables name modules without running them (`REGISTRIES`): they are
left out, or each new line in them would change every digest.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
"""Where the packages lie: a checkout, or the folder of an installation."""
PACKAGES = ("backends", "harness", "reports", "results", "workloads")
REGISTRIES = {"backends/__init__.py": "BACKENDS", "workloads/__init__.py": "WORKLOADS"}
COMPILED = (".cpp", ".cu", ".h")
DIGITS = 16
_NAMED = re.compile(rf"\b(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_CPP_PARTS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)


def digest(content: bytes) -> str:
    """16 hex digits."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def written(path: Path) -> tuple[int, int] | None:
    """When a file was last written (ns) and its size in bytes; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@dataclass(frozen=True, slots=True)
class SourceModule:
    """What one file says and which modules it names."""

    digest: str
    imported: frozenset[str]
    """Dotted names; the last part may be a name inside the module."""
    mentioned: frozenset[str]
    """Likewise, in texts."""


class Sources:
    """The project's sources below `root`, each read once."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._modules: dict[str, SourceModule] = {}
        self._paths: dict[str, str | None] = {}
        self._compiled: dict[str, dict[str, str]] = {}
        self._written: dict[str, tuple[int, int] | None] = {}
        """By path, from before the file was read."""

    def are_as_read(self, paths: Iterable[str]) -> bool:
        """Whether none of these paths (below the root) was written since it was read; what is no
        source is passed over."""
        known = (path for path in paths if path in self._written)
        return all(written(self._root / path) == self._written[path] for path in known)

    def read_again(self) -> Sources:
        """The sources as they are now. Those that nobody wrote since are not read again."""
        now = Sources(self._root)
        for name, module in self._modules.items():
            path = self._paths.get(name)
            if path is not None and path in self._written and self.are_as_read([path]):
                now._modules[name], now._written[path] = module, self._written[path]
        return now

    def closure(self, modules: Iterable[str], without: Collection[str] = ()) -> dict[str, str]:
        """The files that `modules` reach, by path below the root, with 16 hex digits each.

        `without`: modules that are not entered, with all below them. Raises `UserError` for a file
        that is no Python, `LookupError` for a module of `modules` that is not there.
        """
        todo = list(modules)
        if missing := [name for name in todo if self._path(name) is None]:
            raise LookupError(f"{self._root}: no module '{missing[0]}'")
        found: dict[str, str] = {}
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            path = self._path(name)
            if name in seen or path is None or _is_below(name, without):
                continue
            seen.add(name)
            module = self._read(name, path)
            found[path] = module.digest
            for other in (name, *module.imported):
                todo += self._prefixes(other)
            for other in module.mentioned:
                reached = self._prefixes(other)
                # a package alone is a word or a file's name: "results.json"
                todo += reached if any("." in prefix for prefix in reached) else ()
        for folder in {path.rpartition("/")[0] for path in found}:
            found |= self._compiled_in(folder)
        return dict(sorted(found.items()))

    def _prefixes(self, name: str) -> list[str]:
        """The modules on the way to a dotted name, itself included where it is one."""
        parts = name.split(".")
        if parts[0] not in PACKAGES:
            return []
        names = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return [name for name in names if self._path(name) is not None]

    def _path(self, name: str) -> str | None:
        if name not in self._paths:
            base = name.replace(".", "/")
            places = (f"{base}.py", f"{base}/__init__.py")
            there = (place for place in places if (self._root / place).is_file())
            self._paths[name] = next(there, None)
        return self._paths[name]

    def _read(self, name: str, path: str) -> SourceModule:
        if name not in self._modules:
            package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
            self._written[path] = written(self._root / path)
            try:
                tree = ast.parse((self._root / path).read_bytes())
            except SyntaxError as error:
                raise UserError(f"{self._root / path}: line {error.lineno}: {error.msg}") from None
            reader = _TreeReader(package, REGISTRIES.get(path))
            reader.read(tree)
            self._modules[name] = SourceModule(
                digest("\n".join(reader.parts).encode("utf-8", "surrogatepass")),
                frozenset(reader.imported),
                frozenset(reader.mentioned),
            )
        return self._modules[name]

    def _compiled_in(self, folder: str) -> dict[str, str]:
        if folder not in self._compiled:
            there = (self._root / folder).glob("[!.]*")
            files = {f"{folder}/{path.name}": path for path in there if path.suffix in COMPILED}
            self._written |= {name: written(path) for name, path in files.items()}
            self._compiled[folder] = {
                name: digest(_without_comments(path).encode()) for name, path in files.items()
            }
        return self._compiled[folder]


class _TreeReader:
    """Writes a syntax tree as text, in half the time of `ast.dump`, and notes what it imports."""

    def __init__(self, package: str, registry: str | None) -> None:
        self._package, self._registry = package, registry
        self.parts: list[str] = []
        self.imported: set[str] = set()
        self.mentioned: set[str] = set()

    def read(self, node: ast.AST) -> None:
        """Take in a node with all below it."""
        kind = type(node)
        self.parts.append(kind.__name__)
        if kind in (ast.Import, ast.ImportFrom):
            self.imported.update(self._imports(node))
        for field in kind._fields:
            value = getattr(node, field, None)
            if field == "body" and _is_for_typing(node):
                continue
            if isinstance(value, ast.AST):
                self.read(value)
            elif isinstance(value, list):
                self._read_all(value)
            else:
                self.parts.append(repr(value))
                if kind is ast.Constant and isinstance(value, str) and "." in value:
                    self.mentioned.update(_NAMED.findall(value))

    def _read_all(self, items: list[ast.AST | str | None]) -> None:
        for item in items:
            if not isinstance(item, ast.AST):
                self.parts.append(repr(item))
            elif not _is_text_alone(item) and not self._is_registry(item):
                self.read(item)
        self.parts.append("]")

    def _imports(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                upward = self._package.split(".")[: 1 - node.level or None]
                base = ".".join([*upward, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)

    def _is_registry(self, node: ast.AST) -> bool:
        if self._registry is None or not isinstance(node, ast.Assign | ast.AnnAssign):
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(t, ast.Name) and t.id == self._registry for t in targets)


def _is_text_alone(node: ast.AST) -> bool:
    """A docstring, of whatever it stands after."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_for_typing(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    name = test.id if isinstance(test, ast.Name) else getattr(test, "attr", None)
    return name == "TYPE_CHECKING"


def _is_below(name: str, packages: Collection[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def _without_comments(path: Path) -> str:
    """The lines of a C++ file that say something."""
    text = _CPP_PARTS.sub(lambda found: found[1] or " ", path.read_text(encoding="utf-8"))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines))
