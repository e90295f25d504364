"""Python functions to complete, in HumanEval's fields: prompt, tests and canonical solution."""

from typing import Any

from workloads.bundled.draw import Draw
from workloads.bundled.program_shapes import FunctionShape, program
from workloads.bundled.splits import Subject
from workloads.bundled.words import words

_VERBS = words("build check count find get make measure pick read solve take work")
_NOUNS = words("answer figure group level mark number output part rank result score value")
_TEXT_WORDS = words(
    "Amber apple bird Blue cat cold Day deer end fish Green hat ice jump Kite lamp moon night Old "
    "pear queen River sea small tree under Very warm yellow zebra 7 42 a2 x9"
)


def _argument(draw: Draw, kind: str) -> Any:
    """Draw an argument of a source kind (see `Source.kind`)."""
    if kind == "list":
        return [draw.integer(-9, 60) for _ in range(draw.integer(0, 6))]
    if kind in ("range", "int"):
        return draw.integer(0, 40)
    if kind == "names":
        return draw.pick(_TEXT_WORDS, draw.integer(0, 5))
    return " ".join(draw.pick(_TEXT_WORDS, draw.integer(0, 4)))


def _small(draw: Draw, kind: str) -> Any:
    """Draw a short argument for the docstring's example."""
    if kind == "list":
        return [draw.integer(1, 40) for _ in range(3)]
    if kind in ("range", "int"):
        return draw.integer(2, 9)
    return draw.pick(_TEXT_WORDS, 2) if kind == "names" else " ".join(draw.pick(_TEXT_WORDS, 2))


def _call(spec: FunctionShape, arguments: list[Any]) -> Any:
    """Run the canonical solution (our own code) on arguments."""
    scope: dict[str, Any] = {}
    exec(spec.source("solution"), scope)
    return scope["solution"](*arguments)


def _prompt(draw: Draw, spec: FunctionShape, name: str) -> str:
    """Return the function's head and docstring, mostly with an example."""
    lines = [f"def {name}({spec.signature}:", f'    """{spec.sentence}']
    if draw.chance(0.6):
        arguments = [_small(draw, kind) for kind in spec.kinds]
        shown = ", ".join(repr(a) for a in arguments)
        lines += ["", f"    >>> {name}({shown})", f"    {_call(spec, arguments)!r}", '    """']
    else:
        lines[-1] += '"""'
    return "\n".join(lines) + "\n"


def _tests(draw: Draw, spec: FunctionShape) -> str:
    """Return HumanEval's `check(candidate)` with assertions on five drawn inputs."""
    lines = ["def check(candidate):"]
    for _ in range(5):
        arguments = [_argument(draw, kind) for kind in spec.kinds]
        shown = ", ".join(repr(a) for a in arguments)
        lines.append(f"    assert candidate({shown}) == {_call(spec, arguments)!r}")
    return "\n".join(lines) + "\n"


def function(draw: Draw) -> tuple[Subject, dict[str, str]]:
    """Return what a function is about and its row.

    The key is its signature and body; the form leaves out the names in them. Neither holds the
    function's name or the docstring.
    """
    spec = program(draw)
    name = f"{draw.choose(_VERBS)}_{draw.choose(_NOUNS)}"
    row = {
        "task_id": f"Bundled/{draw.hexadecimal(10)}",
        "prompt": _prompt(draw, spec, name),
        "entry_point": name,
        "canonical_solution": spec.body,
        "test": _tests(draw, spec),
    }
    return Subject(f"{spec.signature}\n{spec.body}", f"program/{spec.form}"), row
