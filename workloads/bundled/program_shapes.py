"""The families of bundled programs: one expression, a count, a judgement, a loop or a branch."""

import builtins
import keyword
import re
from dataclasses import dataclass, replace

from workloads.bundled.draw import Draw
from workloads.bundled.program_parts import (
    CHARACTERS,
    LIST_REDUCTIONS,
    NUMBER_FILTERS,
    NUMBER_REDUCTIONS,
    NUMBERS,
    TEXT_REDUCTIONS,
    WORDS,
    ElementSource,
    Kit,
    Piece,
    singular,
)

_NAME = re.compile(r"'[^']*'|\.\w+|[A-Za-z_]\w*")
_PYTHONS_OWN = frozenset(keyword.kwlist) | frozenset(dir(builtins))


@dataclass(frozen=True)
class FunctionShape:
    """A function without its name: signature after it, docstring sentence, body, inputs' kinds."""

    signature: str
    sentence: str
    body: str
    kinds: tuple[str, ...]

    def source(self, name: str) -> str:
        """Return the whole function as Python source."""
        return f"def {name}({self.signature}:\n{self.body}"

    @property
    def form(self) -> str:
        """The body with parameters and variables numbered in the order in which they come up.

        Programs that differ in names, in annotations or in what their docstrings say have one form.
        """
        numbers: dict[str, int] = {}

        def numbered(match: re.Match[str]) -> str:
            name = match[0]
            if name in _PYTHONS_OWN or name[0] in "'.":
                return name
            return f"_{numbers.setdefault(name, len(numbers))}"

        parameters = re.findall(r"(\w+):", self.signature)
        return _NAME.sub(numbered, f"{' '.join(parameters)}\n{self.body}")


@dataclass(frozen=True)
class Elements:
    """What a program runs over: a source with its filters and at most one map."""

    source: ElementSource
    param: str
    noun: str
    conditions: tuple[str, ...] = ()
    element: str = ""

    @property
    def loop(self) -> str:
        """The `for` clause over the source."""
        return f"for {self.source.v} in {self.source.code.format(p=self.param)}"

    @property
    def condition(self) -> str:
        """The filters as one Python condition, empty without filters."""
        return " and ".join(self.conditions)

    @property
    def generator(self) -> str:
        """The inside of a generator expression that yields the elements."""
        return f"{self.element} {self.loop}" + (f" if {self.condition}" if self.conditions else "")

    def program(self, result: str, sentence: str, *lines: str) -> FunctionShape:
        """Return the program with these body lines."""
        signature = f"{self.param}: {self.source.annotation}) -> {result}"
        body = "".join(f"    {line}\n" for line in lines)
        return FunctionShape(signature, sentence, body, (self.source.kind,))


def _render(draw: Draw, piece: Piece, v: str, x: str = "") -> tuple[str, str]:
    """Return a piece's English and Python with one phrasing and one constant drawn."""
    k = draw.choose(piece.constants) if piece.constants else None
    return draw.choose(piece.phrases).format(x=x, k=k), piece.code.format(v=v, k=k, x=x)


def _filtered(draw: Draw, kit: Kit, counts: tuple[int, ...]) -> Elements:
    """Draw a source with one of these counts of filters."""
    source = draw.choose(kit.sources)
    param = draw.choose(source.params)
    noun = f"the {source.noun.format(p=param)}"
    filters = [_render(draw, p, source.v) for p in draw.pick(kit.filters, draw.choose(counts))]
    if filters:
        noun += " that " + " and ".join(english for english, _ in filters)
    return Elements(source, param, noun, tuple(code for _, code in filters), source.v)


def _elements(draw: Draw, kit: Kit) -> Elements:
    """Draw a source with no to two filters and, half of the time, a map."""
    plain = _filtered(draw, kit, (0, 1, 1, 1, 1, 2))
    if draw.chance(0.4):
        return plain
    noun, element = _render(draw, draw.choose(kit.maps), plain.source.v, plain.noun)
    return replace(plain, noun=noun, element=element)


def _reduced(draw: Draw, kit: Kit, reductions: tuple[Piece, ...], result: str) -> FunctionShape:
    """Reduce the elements in a single expression."""
    elements = _elements(draw, kit)
    piece = draw.choose(reductions)
    k = draw.choose(piece.constants) if piece.constants else None
    english = draw.choose(piece.phrases).format(x=elements.noun, k=k)
    code = piece.code.format(x=elements.generator, k=k)
    return elements.program(result, f"Return {english}.", f"return {code}")


def _total(draw: Draw) -> FunctionShape:
    return _reduced(draw, NUMBERS, NUMBER_REDUCTIONS, "int")


def _listing(draw: Draw) -> FunctionShape:
    kit = draw.choose((NUMBERS, NUMBERS, WORDS))
    return _reduced(draw, kit, LIST_REDUCTIONS, f"list[{kit.element}]")


def _joined(draw: Draw) -> FunctionShape:
    return _reduced(draw, draw.choose((WORDS, CHARACTERS)), TEXT_REDUCTIONS, "str")


def _count(draw: Draw) -> FunctionShape:
    """Count the elements that pass the filters."""
    elements = _filtered(draw, draw.choose((NUMBERS, WORDS, CHARACTERS)), (1, 1, 2))
    sentence = draw.choose(("Return the number of {x}.", "Count {x}.", "Return the count of {x}."))
    code = f"return sum(1 {elements.loop} if {elements.condition})"
    return elements.program("int", sentence.format(x=elements.noun), code)


def _judgement(draw: Draw) -> FunctionShape:
    """Test whether all, any or none of the elements pass the filters."""
    elements = _filtered(draw, draw.choose((NUMBERS, WORDS, CHARACTERS)), (1, 1, 2))
    noun, _, rule = elements.noun.partition(" that ")
    english, code = draw.choose((("all", "all"), ("any", "any"), ("none", "not any")))
    sentence = f"Return whether {english} of {noun} {rule}."
    return elements.program(
        "bool", sentence, f"return {code}({elements.condition} {elements.loop})"
    )


def _loop(draw: Draw) -> FunctionShape:
    """Walk over the numbers in a loop that keeps a state."""
    e = _elements(draw, NUMBERS)
    sentence, start, updates, final, result = draw.choose(
        (
            (
                "Return the product of {x}.",
                "result = 1",
                (f"result *= {e.element}",),
                "result",
                "int",
            ),
            (
                "Return the last of {x}, or -1.",
                "last = -1",
                (f"last = {e.element}",),
                "last",
                "int",
            ),
            ("Return the first of {x}, or -1.", "", (f"return {e.element}",), "-1", "int"),
            (
                "Return the running totals of {x}.",
                "total, result = 0, []",
                (f"total += {e.element}", "result.append(total)"),
                "result",
                "list[int]",
            ),
            (
                "Return a list of {x}, last one first.",
                "result = []",
                (f"result.insert(0, {e.element})",),
                "result",
                "list[int]",
            ),
            (
                "Return the sum of {x}, stopping once it passes 50.",
                "total = 0",
                (f"total += {e.element}", "if total > 50:", "    break"),
                "total",
                "int",
            ),
        )
    )
    depth = "    " * (2 if e.conditions else 1)
    guard = [f"    if {e.condition}:"] if e.conditions else []
    body = [start] if start else []
    body += [f"{e.loop}:", *guard, *(depth + line for line in updates), f"return {final}"]
    return e.program(result, sentence.format(x=e.noun), *body)


def _value(draw: Draw, first: str, second: str) -> tuple[str, str]:
    """Return the English and the Python of a result computed from two numbers."""
    k = draw.integer(2, 30)
    one, other = draw.choose(((first, second), (second, first)))
    return draw.choose(
        (
            (f"{one} plus {k}", f"{one} + {k}"),
            (f"{one} minus {k}", f"{one} - {k}"),
            (f"{one} times {k}", f"{one} * {k}"),
            (one, one),
            (str(k), str(k)),
            (f"the sum of {one} and {other}", f"{one} + {other}"),
            (f"the product of {one} and {other}", f"{one} * {other}"),
            (f"{one} minus {other}", f"{one} - {other}"),
            (f"the square of {one}", f"{one} * {one}"),
            (f"the larger of {one} and {k}", f"max({one}, {k})"),
            (f"the smaller of {one} and {k}", f"min({one}, {k})"),
        )
    )


def _branch(draw: Draw) -> FunctionShape:
    """Choose between two results by a test of one number or of both."""
    first, second = draw.pick(("a", "b", "m", "n", "x", "y", "size", "price", "count"), 2)
    english, test = _render(draw, draw.choose(NUMBER_FILTERS), first)
    rule = singular(english)
    if draw.chance(0.3):
        word, sign = draw.choose((("greater", ">"), ("less", "<")))
        rule, test = f"is {word} than {second}", f"{first} {sign} {second}"
    (words, code), (other_words, other_code) = (_value(draw, first, second) for _ in range(2))
    sentence = f"Return {words} if {first} {rule}, otherwise {other_words}."
    body = f"    if {test}:\n        return {code}\n    return {other_code}\n"
    return FunctionShape(f"{first}: int, {second}: int) -> int", sentence, body, ("int", "int"))


FAMILIES = (
    _total,
    _total,
    _listing,
    _listing,
    _listing,
    _joined,
    _joined,
    _count,
    _judgement,
    _branch,
    _branch,
    _branch,
    _loop,
    _loop,
    _loop,
)


def program(draw: Draw) -> FunctionShape:
    """Draw a program of one of the families."""
    return draw.choose(FAMILIES)(draw)
