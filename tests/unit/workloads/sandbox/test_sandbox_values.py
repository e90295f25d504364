"""What passes between a program and its tests means there what it means in one interpreter."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.sandbox.runner import UntrustedProgram, run_program
from workloads.sandbox.values import Opaque, decode, encode

GUARD = """
import builtins, os, sys
for name in ("exec", "eval", "compile", "open", "len", "isinstance", "type", "list", "zip", "range",
             "callable", "hasattr", "getattr", "int", "str", "bytes", "min", "any", "map",
             "enumerate", "Exception", "BaseException", "print"):
    setattr(builtins, name, None)
os.read = os.write = os._exit = sys.exit = None
"""
RIGHT = {
    "plain": ("def f(x): return x + 1", "assert f(1) == 2"),
    "after a guard": (GUARD + "def f(x): return [x, 'a']", "assert f(3) == [3, 'a']"),
    "named arguments": ("def f(x, *, k=1): return x * k", "assert f(2, k=3) == 6"),
    "a counter for a dict": (
        "import collections\ndef f(x): return collections.Counter(x)",
        "assert f('aab') == {'a': 2, 'b': 1} and f('a')['a'] == 1",
    ),
    "a fraction": (
        "from fractions import Fraction\ndef f(x): return Fraction(x, 2)",
        "assert f(1) == 0.5",
    ),
    "a decimal": (
        "from decimal import Decimal\ndef f(x): return Decimal(x)",
        "assert f('0.5') == 0.5",
    ),
    "a generator in a list": ("def f(x):\n    yield from x", "assert list(f('ab')) == ['a', 'b']"),
    "a generator has an end": (
        "def f(x):\n    yield 1",
        "g = f(0)\nassert list(g) == [1] and list(g) == []",
    ),
    "a range": ("def f(x): return range(x)", "r = f(2)\nassert len(r) == 2 and r[1] == 1"),
    "an object is true": ("import re\ndef f(x): return re.match('a', x)", "assert f('a')"),
    "an empty object is not": (
        "import collections\nf = lambda x: collections.deque()",
        "assert not f(1)",
    ),
    "the type of a bool": ("def f(x): return x > 1", "assert f(2) is True and type(f(1)) is bool"),
    "changes its argument": ("def f(x): x.sort()", "x = [3, 1]\nf(x)\nassert x == [1, 3]"),
    "changes a dict and a set": (
        "def f(d, s):\n    d['b'] = 2\n    s.discard(1)",
        "d, s = {'a': 1}, {1, 2}\nf(d, s)\nassert d == {'a': 1, 'b': 2} and s == {2}",
    ),
    "leaves its argument": ("def f(x): return sorted(x)", "x = [3, 1]\nf(x)\nassert x == [3, 1]"),
    "calls a function of the tests": (
        "def f(g, x): return [g(v) for v in x]",
        "seen = []\ndef g(v):\n    seen.append(v)\n    return v * 2\n"
        "assert f(g, [1, 2]) == [2, 4] and seen == [1, 2]",
    ),
    "passes on what that raises": (
        "def f(g):\n    try:\n        g()\n    except KeyError as e:\n        return e.args[0]",
        "def g(): raise KeyError('k')\nassert f(g) == 'k'",
    ),
    "returns a function": ("def f(x): return lambda y: x + y", "assert f(1)(2) == 3"),
    "raises what is asked": (
        "def f(x): raise ValueError('no', x)",
        "try:\n    f(1)\nexcept ValueError as e:\n    got = e.args\nassert got == ('no', 1)",
    ),
    "raises a type of its own": (
        "class Odd(KeyError): pass\ndef f(x): raise Odd(x)",
        "try:\n    f(1)\nexcept KeyError as e:\n    got = type(e)\nassert got.__name__ == 'Odd'",
    ),
    "raises with arguments that only fit its type": (
        "def f(x): return b'\\xff'.decode()",
        "try:\n    f(1)\nexcept UnicodeDecodeError as e:\n    got = e.start\nassert got == 0",
    ),
    "keeps a state": (
        "n = 0\ndef f():\n    global n\n    n += 1\n    return n",
        "assert [f(), f()] == [1, 2]",
    ),
    "large": ("def f(x): return x[::-1]", "x = list(range(10**5))\nassert f(x) == x[::-1]"),
}
UNEQUAL = {
    "a generator": ("def f(x):\n    yield 1", "assert f(0) == [1]"),
    "a tuple for a list": ("def f(x): return 1,", "assert f(0) == [1]"),
    "a range for a list": ("def f(x): return range(2)", "assert f(0) == [0, 1]"),
    "a coroutine": ("async def f(x): return 1", "assert f(0) == 1"),
    "a list that holds itself": ("def f(x):\n    x = []\n    x.append(x)\n    return x", "f(0)"),
    "another exception": (
        "def f(x): raise TypeError",
        "try:\n    f(1)\nexcept ValueError:\n    pass",
    ),
    "an argument changed that is used again": (
        "def f(x): return x.pop()",
        "x = [1]\nassert f(x) == 1 and f(x) == 1",
    ),
    "tests that call nothing": ("def f(x): return 1", "def check(g): assert g(0) == 2"),
}


@pytest.mark.parametrize(("source", "tests"), RIGHT.values(), ids=RIGHT.keys())
def test_right_values_pass(source: str, tests: str) -> None:
    assert run_program(UntrustedProgram(source, tests, ("f",)), timeout_s=60).reason == ""


@pytest.mark.parametrize(("source", "tests"), UNEQUAL.values(), ids=UNEQUAL.keys())
def test_what_a_plain_interpreter_fails_fails(source: str, tests: str) -> None:
    assert not run_program(UntrustedProgram(source, tests, ("f",)), timeout_s=5).passed


def test_given_code_serves_the_tests_and_the_program_cannot_replace_it() -> None:
    answer = "def twice(x): return 7\ndef f(x): return 7"
    tests = "assert f(2) == twice(2)"
    given = "def twice(x): return 2 * x\ndef f(x): return None"
    assert not run_program(UntrustedProgram(answer, tests, ("f",), given)).passed
    right = "def f(x): return x + x"
    assert run_program(UntrustedProgram(right, tests, ("f",), given)).reason == ""


def test_name_that_is_not_there_is_told() -> None:
    result = run_program(UntrustedProgram("g = 1", "assert f(1)", ("f",)))
    assert result.reason == "NameError: name 'f' is not defined"


def _nothing(*_: object) -> Any:
    raise AssertionError("no function is in these values")


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_went(value: object) -> None:
    back = decode(encode(value, _nothing), _nothing)
    assert back == value
    assert repr(back) == repr(value)


@given(st.sets(st.integers()) | st.frozensets(st.text()))
def test_sets_come_back_though_their_order_may_not(value: object) -> None:
    back = decode(encode(value, _nothing), _nothing)
    assert back == value
    assert type(back) is type(value)


@given(st.binary() | PLAIN.map(lambda v: encode(v, _nothing)[:-1]))
def test_any_other_bytes_are_refused_or_plain(data: bytes) -> None:
    try:
        value = decode(data, lambda number, name: _nothing)
    except Exception:
        return
    assert value is _nothing or type(value) is Opaque or type(value).__module__ in KNOWN_MODULES


KNOWN_MODULES = ("builtins", "decimal", "fractions")
Pair = namedtuple("Pair", "a b")


class Always(int):
    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class Boastful(list[int]):
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2, 3])


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Boastful([7]), [7]),
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Pair(1, [2]), (1, [2])),
        (Always(7), 7),
        (Decimal("0.10"), Decimal("0.10")),
        (Fraction(1, 3), Fraction(1, 3)),
        (float("inf"), math.inf),
        (bytearray(b"a"), bytearray(b"a")),
    ],
)
def test_subclasses_come_as_their_built_in_part(value: object, plain: object) -> None:
    back = decode(encode(value, _nothing), _nothing)
    assert type(back) is type(plain)
    assert back == plain


@given(PLAIN, st.binary(min_size=1))
def test_nothing_may_follow_a_value(value: object, more: bytes) -> None:
    with pytest.raises(ValueError, match="bytes after the value"):
        decode(encode(value, _nothing) + more, _nothing)


def test_nan_and_the_sign_of_zero_come_through() -> None:
    back = decode(encode([math.nan, -0.0], _nothing), _nothing)
    assert isinstance(back, list)
    nan, zero = back
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1


def test_object_of_another_class_is_equal_to_nothing() -> None:
    back = decode(encode(deque([1]), _nothing), _nothing)
    assert back != [1]
    assert isinstance(back, Opaque)
    assert list(back) == [1]
    assert bool(back)
    assert repr(back) == "<deque object>"
    with pytest.raises(TypeError, match="'object' object has no items"):
        len(decode(encode(object(), _nothing), _nothing))  # type: ignore[arg-type]


def test_functions_are_numbered_where_they_live() -> None:
    exported: list[Callable[..., object]] = []

    def export(function: Callable[..., object]) -> int:
        exported.append(function)
        return 5

    back = decode(encode([len], export), lambda number, name: lambda: (number, name))
    assert exported == [len]
    assert back[0]() == (5, "len")  # type: ignore[index]
