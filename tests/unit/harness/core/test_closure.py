"""Which sources a module reaches, and what of them a digest follows."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.core.closure import PACKAGES, ROOT, Sources
from harness.core.errors import UserError

TREE = {
    "backends/__init__.py": '"""Words."""\nBACKENDS = {"one": "backends.one:One"}\nOTHER = 1\n',
    "backends/one.py": "from backends.parts import piece\nimport torch\nimport os.path\n",
    "backends/two.py": "from backends.parts.piece import name, other\n",
    "backends/parts/__init__.py": "",
    "backends/parts/piece.py": "def name():\n    from harness.late import thing\n",
    "backends/parts/unused.py": "",
    "backends/parts/fast.cpp": "int a; // of it\n",
    "backends/parts/words.txt": "no code",
    "harness/late.py": "from typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    import harness.typed\nelse:\n    import harness.really\n",
    "harness/typed.py": "",
    "harness/really.py": "from . import near\nfrom .near import name\n",
    "harness/near.py": "",
}


def write(root: Path, files: Mapping[str, str] = TREE) -> Sources:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return Sources(root)


def test_imports_are_followed_wherever_they_stand_but_for_typing(tmp_path: Path) -> None:
    found = write(tmp_path).closure(["backends.one"])
    assert [*found] == [
        "backends/__init__.py",
        "backends/one.py",
        "backends/parts/__init__.py",
        "backends/parts/fast.cpp",
        "backends/parts/piece.py",
        "harness/late.py",
        "harness/near.py",
        "harness/really.py",
    ]
    assert all(len(digits) == 16 for digits in found.values())


def test_a_registry_names_modules_and_runs_none(tmp_path: Path) -> None:
    before = write(tmp_path).closure(["backends.two"])
    longer = TREE["backends/__init__.py"].replace("{", '{"three": "backends.three:Three", ')
    assert write(tmp_path, {"backends/__init__.py": longer}).closure(["backends.two"]) == before
    more = {"backends/__init__.py": longer.replace("OTHER = 1", "OTHER = 2")}
    assert write(tmp_path, more).closure(["backends.two"]) != before


@pytest.mark.parametrize("text", ["{}:Model", "{}.Model", "{}", "from {} import main; main()"])
def test_a_module_named_in_a_text_is_reached(tmp_path: Path, text: str) -> None:
    call = f"call({text.format('backends.named.model')!r})\n"
    files = {"backends/named/model.py": "", "backends/asks.py": call}
    assert "backends/named/model.py" in write(tmp_path, files).closure(["backends.asks"])


def test_a_text_that_only_looks_like_a_module_is_none(tmp_path: Path) -> None:
    files = {
        "results/__init__.py": "",
        "backends/named/model.py": "",
        "backends/asks.py": '"""Like backends.named.model."""\nNAME = "results.json"\nx = 1\n'
        '"""And backends.named.model."""\n',
    }
    assert [*write(tmp_path, files).closure(["backends.asks"])] == ["backends/asks.py"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = f(1, 2)\n", "# why\nx = f(\n    1,\n    2,\n)\n"),
        ("def f():\n    return 1\n", 'def f():\n    """Says."""\n    return 1\n'),
        ("class A:\n    x: int\n", 'class A:\n    """Says."""\n\n    x: int\n    """Metres."""\n'),
        ("x = 1\n", '"""Says."""\nx = 1\n"""Says."""\n'),
        ("x = 'a'\n", 'x = "a"\n'),
    ],
)
def test_comments_docstrings_and_layout_change_no_digest(
    tmp_path: Path, before: str, after: str
) -> None:
    kept = write(tmp_path, {"backends/a.py": before}).closure(["backends.a"])
    assert write(tmp_path, {"backends/a.py": after}).closure(["backends.a"]) == kept


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1\n", "x = 2\n"),
        ("x = 1\n", "x = 1.0\n"),
        ("x = 1\n", "x = True\n"),
        ("x = 'a'\n", "x = b'a'\n"),
        ("x = a + b\n", "x = a - b\n"),
        ("x = f(a, b)\n", "x = f(a)(b)\n"),
        ("x = f(a=b)\n", "x = f(**b)\n"),
        ("x = [a, [b]]\n", "x = [a, b]\n"),
        ("if a:\n    f()\n    g()\n", "if a:\n    f()\ng()\n"),
        ("def f(a, /, b): ...\n", "def f(a, b): ...\n"),
        ("global_name = 'Says.'\n", "other_name = 'Says.'\n"),
        ("x = 'bar'\ny = ''\n", "x = ''\ny = 'bar'\n"),
    ],
)
def test_whatever_says_something_else_has_another_digest(
    tmp_path: Path, before: str, after: str
) -> None:
    kept = write(tmp_path, {"backends/a.py": before}).closure(["backends.a"])
    assert write(tmp_path, {"backends/a.py": after}).closure(["backends.a"]) != kept


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("int a;   /* of\n it */\n\n", True),
        ("int a; // other words\n", True),
        ("int b;\n", False),
        ("int a;\nchar *s = \"//\";\n", False),
    ],
)  # fmt: skip
def test_compiled_files_count_by_what_they_say(tmp_path: Path, text: str, same: bool) -> None:
    name = "backends/parts/fast.cpp"
    kept = write(tmp_path).closure(["backends.one"])[name]
    (tmp_path / "backends/parts/.#fast.cpp").symlink_to("nobody@nowhere")
    found = write(tmp_path, {name: text}).closure(["backends.one"])
    assert (found[name] == kept) is same


def test_a_comment_sign_in_a_text_is_no_comment(tmp_path: Path) -> None:
    name = "backends/parts/fast.cpp"
    two = []
    for end in ("a", "b"):
        write(tmp_path, TREE | {name: f'char *s = "\\"//{end}", q = \'"\'; // c\n'})
        two.append(Sources(tmp_path).closure(["backends.one"])[name])
    assert two[0] != two[1]


def test_what_is_left_out_is_not_entered(tmp_path: Path) -> None:
    found = write(tmp_path).closure(["backends.one"], without=["backends.parts"])
    assert [*found] == ["backends/__init__.py", "backends/one.py"]
    assert "backends/parts/piece.py" in Sources(tmp_path).closure(["backends.one"], ["backends.pa"])


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    sources = write(tmp_path, {"backends/broken.py": "x = 1\ndef f(:\n"})
    with pytest.raises(UserError, match=r"backends/broken\.py: line 2: "):
        sources.closure(["backends.broken"])
    with pytest.raises(LookupError, match=r"no module 'backends\.absent'"):
        sources.closure(["backends.absent"])


def test_the_digest_is_of_the_whole_tree() -> None:
    """Held against `ast.dump`, which knows every field: files of one digest have one dump."""
    sources, by_digest = Sources(), dict[str, set[str]]()
    for path in sorted((ROOT / "harness" / "measure").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found = sources.closure([name])[str(path.relative_to(ROOT))]
        by_digest.setdefault(found, set()).add(ast.dump(plain(path)))
    assert len(by_digest) > 10
    assert {len(dumps) for dumps in by_digest.values()} == {1}


def plain(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [item for item in value if not is_text(item)])
    return tree


def is_text(node: object) -> bool:
    value = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def test_the_packages_are_those_of_the_project() -> None:
    assert {name for name in PACKAGES if (ROOT / name / "__init__.py").is_file()} == {*PACKAGES}
