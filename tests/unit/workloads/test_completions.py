"""HumanEval's answers in the forms that models give them."""

from __future__ import annotations

import gzip
import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from workloads.completions import complete_program
from workloads.scoring import score_all

Rows = list[dict[str, str]]

PROMPT = '''import math
from typing import List

NOTE = """
Not code:
def area(r): pass
"""


def square(x):
    return x * x


def area(r: float) -> float:
    """ Area of a circle.
    >>> area(0)
    0.0
    """
'''
ROW = {
    "task_id": "T/0",
    "prompt": PROMPT,
    "entry_point": "area",
    "canonical_solution": "    return math.pi * square(r)\n",
    "test": "def check(f):\n    assert f(0) == 0\n    assert 3 < f(1) < 4\n",
}
WHOLE = "def area(r: float) -> float:\n    return math.pi * square(r)\n"
RIGHT = {
    "body": "    return math.pi * square(r)\n",
    "body after a line break": "\n    return math.pi * square(r)",
    "body, first indent lost": "x = square(r)\n    return math.pi * x",
    "body, first indent lost before a block": "if r:\n        r = math.pi * r * r\n    return r",
    "body, partial indent": " return math.pi * square(r)",
    "body, all indent lost": "x = square(r)\nif x:\n    x *= math.pi\nreturn x",
    "body, then prose": "return math.pi * square(r)\n\nThis is the area of a circle.",
    "body, then a cut function": "    return math.pi * square(r)\n\ndef helper(x):\n    retu",
    "body, then a print": "    return math.pi * square(r)\nprint(area(",
    "body, then a guard": "    return math.pi * square(r)\n\nif __name__ == '__main__':\n    exit(",
    "body with a string over lines": '    s = """\nleft\n"""\n    return math.pi * r * r\nprint(',
    "body with quotes in a string": '    s = """\n\'\'\'\nx\n"""\n    return math.pi * r * r\n',
    "body with brackets over lines": "    x = (\n        r\n)\n    return math.pi * square(x)\n",
    "whole function": WHOLE,
    "whole function, then a fence": WHOLE + "```\n\nThis is it.",
    "whole function, a fence in its docstring": WHOLE.replace(
        "\n", '\n    """\n```\n1\n```\n"""\n', 1
    ),
    "whole function, then a cut one": WHOLE + "\n\ndef helper(x):\n    retu",
    "whole function after its import": "import math\n\n" + WHOLE,
    "whole function after a helper": "def double(x):\n    return 2 * x\n\n" + WHOLE,
    "whole prompt again": PROMPT + ROW["canonical_solution"],
    "chat": f"Sure! Here it is:\n\n```python\n{WHOLE}\nprint(area(1))\n```\n\nIt uses `math`.",
    "chat with a false example": f"```python\n{WHOLE}\nassert area(1) == 3\n```",
    "chat with a guard": f"```py\n{WHOLE}\nif __name__ == '__main__':\n    1 / 0\n```",
    "chat, helper after": (
        "```python\ndef area(r):\n    return half(2 * math.pi * square(r))\n\n\n"
        "def half(x):\n    return x / 2\n```"
    ),
    "chat, two blocks": f"Try:\n```\npip install it\n```\nthen\n```python\n{WHOLE}```",
    "chat, fence never closed": f"```python\n{WHOLE}\n\ndef other(",
    "chat, body in a block": "The body is\n```python\n    return math.pi * square(r)\n```",
    "chat, bare body in a block": "```python\nx = square(r)\nreturn math.pi * x\n```",
    "chat, indented fence": f"1. Code:\n  ```python\n{WHOLE}  ```\n",
    "decorated": "import functools\n\n@functools.cache\n" + WHOLE,
    "async is not awaited but this is fine": "area = lambda r: math.pi * square(r)\ndef area(r):\n"
    "    return math.pi * square(r)\n",
    "carriage returns": WHOLE.replace("\n", "\r\n"),
    "body, then a fence": "    return math.pi * square(r)\n```\n",
    "body, then an indented fence": "    return math.pi * square(r)\n    ```\n",
    "body, all indent lost, then a fence": "x = square(r)\nreturn math.pi * x\n```\n\nThat is it.",
    "body, then a fence and a heading": (
        "    return math.pi * square(r)\n```\n\n### How\nIt multiplies."
    ),
    "body, then an example in a block": (
        "    return math.pi * square(r)\n\n```python\ndef area(r):\n    return 0\n```\n"
    ),
    "body with a fence in a string": (
        '    """\n```\n1\n```\n    """\n    return math.pi * square(r)\n'
    ),
    "body with a line separator in a string": (
        "    s = '\u2028'\n    return math.pi * square(r)\n"
    ),
    "body with a comment at the margin": "    x = square(r)\n# then\n    return math.pi * x\n",
    "body, then the prompt again, cut off": (
        "    return math.pi * square(r)\n\n\n" + PROMPT.rpartition("0.0")[0]
    ),
    "body, then another like it": (
        "    return math.pi * square(r)\n\ndef area(r):\n    return 0\n"
    ),
    "no body, then the function": "    # as follows\n\n" + WHOLE,
    "chat, body in a later block": (
        "Try:\n```\npip install it\n```\nthen\n```\n    return math.pi * square(r)\n```"
    ),
    "chat, import from the future": (
        "```python\nfrom __future__ import annotations\n\n"
        + WHOLE.replace("r: float", "r: Unknown")
        + "```"
    ),
    "chat, constant with its type": (
        "```python\nHALF: float = math.pi / 2\n\ndef area(r):\n    return 2 * HALF * r * r\n```"
    ),
    "chat, constants in a row": (
        "```python\nA, B = math.pi, 2\n\ndef area(r):\n    return A * r**B\n```"
    ),
    "chat, constant that needs another": (
        "```python\ndef area(r):\n    return FULL * r * r\n\n"
        "HALF = math.pi / 2\nFULL = 2 * HALF\n```"
    ),
    "chat, names that a star brings": (
        "```python\nfrom math import *\n\ndef area(r):\n    return pi * r * r\n```"
    ),
    "chat, comment at the margin": (
        "```python\ndef area(r):\n    x = square(r)\n# then\n    return math.pi * x\n```"
    ),
    "chat, block in a list": (
        "1. Code:\n\n   ```python\n   def area(r):\n       return math.pi * square(r)\n   ```\n"
    ),
    "chat, example that reads": (
        "```python\ndef area(r):\n    x = r * r\n    return math.pi * x\n\nx = input()\n```"
    ),
    "chat, example before it": f"```python\nr = float(input())\n\n{WHOLE}```",
    "chat, example that is not Python": f"```python\n{WHOLE}\n>>> area(1)\n3.14\n```",
    "prose like a class": "class of problem: circles.\n\n" + WHOLE,
    "prose like an import": "import the math module first:\n\n" + WHOLE,
    "prose like an assignment": "Area = the space within.\n\n" + WHOLE,
    "prose that is an assignment": "Area = space\n\n" + WHOLE,
    "prose, then a decorated function": "import it:\nimport functools\n\n@functools.cache\n"
    + WHOLE,
    "thinks first": f"<think>```python\ndef area(r):\n    return 0\n```</think>\n{WHOLE}",
}
WRONG = {
    "nothing": "",
    "blank": "  \n\n",
    "wrong": "    return r\n",
    "refusal": "I am sorry, I cannot do that.",
    "only the docstring's stub": "    pass\n",
    "another name": "def surface(r):\n    return math.pi * square(r)\n",
    "syntax error": "    return math.pi * (square(r)\n",
    "leaves": "    import os; os._exit(0)\n",
    "fence alone": "```python\n```",
    "the first block counts": f"```\ndef area(r):\n    return 0\n```\nor\n```\n{WHOLE}```",
    "the first function counts": f"Two:\n\ndef area(r):\n    return (0\n\n{WHOLE}",
    "statements beside definitions do not run": (
        "```python\nK = [0]\nK.append(math.pi)\n\ndef area(r):\n    return K[-1] * r * r\n```"
    ),
    "an import that the sandbox has not": f"```python\nimport numpy as math\n\n{WHOLE}```",
    "only thinks": f"{WHOLE}</think>",
}


def test_right_answers_pass_in_whatever_form() -> None:
    scores = score_all("humaneval", [ROW] * len(RIGHT), list(RIGHT.values()))
    assert {name for name, s in zip(RIGHT, scores, strict=True) if not s["pass_at_1"]} == set()


def test_wrong_answers_fail_in_whatever_form() -> None:
    scores = score_all("humaneval", [ROW] * len(WRONG), list(WRONG.values()))
    assert {name for name, s in zip(WRONG, scores, strict=True) if s["pass_at_1"]} == set()


def test_body_takes_the_prompts_indent() -> None:
    prompt = 'def f(x):\n  """Two spaces."""\n'
    assert complete_program(prompt, "f", "return x") == prompt + "  return x\n"
    assert complete_program(prompt, "f", "def f(x): return x").startswith(prompt + "\n  pass\n")
    prompt = 'def f2(x):\n    """Four."""\n\n\ndef f(x):\n  r"""Two."""\n'
    assert complete_program(prompt, "f", "return x") == prompt + "  return x\n"


@pytest.fixture(scope="session")
def humaneval(shared_data: Path) -> Rows:
    with gzip.open(shared_data / "humaneval" / "HumanEval.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


FORMS: dict[str, tuple[Callable[[dict[str, str]], str], int]] = {
    "first indent lost": (lambda row: row["canonical_solution"].strip(), 41),
    "all indent lost": (lambda row: textwrap.dedent(row["canonical_solution"]), 41),
    "chat": (
        lambda row: (
            f"Here you are:\n```python\n{row['prompt']}{row['canonical_solution']}\n"
            f"print({row['entry_point']}())\n```\nHope this helps!"
        ),
        41,
    ),
    "runs on": (lambda row: row["canonical_solution"] + "\n\ndef main(:\n    pri", 41),
    "a fence, then a block": (
        lambda row: f"{row['canonical_solution'].rstrip()}\n```\n\n```python\nprint(1)\n```\n",
        41,
    ),
    "the prompt again": (
        lambda row: f"{row['canonical_solution'].rstrip()}\n\n\n{row['prompt'][:-30]}",
        41,
    ),
    "stub": (lambda row: "    pass\n", 0),
}


def test_canonical_solutions_pass(humaneval: Rows) -> None:
    solutions = [row["canonical_solution"] for row in humaneval]
    scores = score_all("humaneval", humaneval, solutions)
    assert [s["pass_at_1"] for s in scores] == [1.0] * 164


@pytest.mark.parametrize(("form", "passing"), FORMS.values(), ids=FORMS.keys())
def test_canonical_solutions_pass_in_other_forms(
    humaneval: Rows, form: Callable[[dict[str, str]], str], passing: int
) -> None:
    """A quarter of the rows, for time. Without their indent, two of the others cannot be told from
    code that is no function body."""
    rows = humaneval[1::4]
    scores = score_all("humaneval", rows, [form(row) for row in rows])
    assert sum(s["pass_at_1"] for s in scores) == passing
