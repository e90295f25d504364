"""The pieces that bundled programs are composed of: sources, filters, maps and reductions.

Every piece holds its English and its Python. `{v}` is the element, `{k}` a constant, `{p}` the
parameter, `{x}` the expression or the noun phrase of the piece below it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementSource:
    """Where elements come from: `noun` in English, `code` an iterable, `v` the loop variable."""

    kind: str
    annotation: str
    params: tuple[str, ...]
    v: str
    noun: str
    code: str


@dataclass(frozen=True)
class Piece:
    """A filter, map or reduction: English phrasings, a Python expression and its constants."""

    phrases: tuple[str, ...]
    code: str
    constants: tuple[int | str, ...] = ()


NUMBER_SOURCES = (
    ElementSource(
        "list",
        "list[int]",
        ("values", "numbers", "nums", "data", "xs"),
        "v",
        "numbers in {p}",
        "{p}",
    ),
    ElementSource("list", "list[int]", ("scores", "prices", "ages", "points"), "v", "{p}", "{p}"),
    ElementSource(
        "range",
        "int",
        ("n", "limit", "top", "size"),
        "i",
        "numbers from 1 to {p}",
        "range(1, {p} + 1)",
    ),
    ElementSource("range", "int", ("n", "stop", "end"), "i", "numbers below {p}", "range({p})"),
    ElementSource(
        "words",
        "str",
        ("text", "line", "sentence"),
        "n",
        "word lengths in {p}",
        "map(len, {p}.split())",
    ),
)
WORD_SOURCES = (
    ElementSource("words", "str", ("text", "line", "sentence"), "w", "words in {p}", "{p}.split()"),
    ElementSource(
        "names", "list[str]", ("words", "names", "items", "tags"), "w", "strings in {p}", "{p}"
    ),
)
CHARACTER_SOURCES = (
    ElementSource("text", "str", ("text", "s", "line", "word"), "c", "characters in {p}", "{p}"),
)

_SMALL, _WIDE = tuple(range(2, 10)), tuple(range(1, 51))
NUMBER_FILTERS = (
    Piece(("are even", "are divisible by two"), "{v} % 2 == 0"),
    Piece(("are odd", "are not even"), "{v} % 2 == 1"),
    Piece(("are positive", "are above zero"), "{v} > 0"),
    Piece(("are not zero", "differ from zero"), "{v} != 0"),
    Piece(("are greater than {k}", "are above {k}", "exceed {k}"), "{v} > {k}", _WIDE),
    Piece(("are less than {k}", "are below {k}"), "{v} < {k}", _WIDE),
    Piece(("are at least {k}", "are {k} or more"), "{v} >= {k}", _WIDE),
    Piece(("are at most {k}", "are {k} or less"), "{v} <= {k}", _WIDE),
    Piece(("are not {k}", "differ from {k}"), "{v} != {k}", _WIDE),
    Piece(("are divisible by {k}", "can be divided by {k}"), "{v} % {k} == 0", tuple(range(3, 13))),
    Piece(
        ("are not divisible by {k}", "cannot be divided by {k}"),
        "{v} % {k} != 0",
        tuple(range(3, 13)),
    ),
    Piece(("end in {k}", "have the last digit {k}"), "{v} % 10 == {k}", tuple(range(1, 10))),
)
NUMBER_MAPS = (
    Piece(("the squares of {x}", "{x}, squared"), "{v} * {v}"),
    Piece(("the cubes of {x}", "{x}, cubed"), "{v} ** 3"),
    Piece(("{x}, doubled", "twice {x}"), "{v} * 2"),
    Piece(("{x}, multiplied by {k}", "{x}, times {k}"), "{v} * {k}", tuple(range(3, 13))),
    Piece(("{x}, increased by {k}", "{x}, plus {k}"), "{v} + {k}", _WIDE),
    Piece(("{x}, reduced by {k}", "{x}, minus {k}"), "{v} - {k}", _WIDE),
    Piece(("{x}, negated", "the opposites of {x}"), "-{v}"),
    Piece(("{x}, modulo {k}", "the remainders of {x} divided by {k}"), "{v} % {k}", _SMALL),
    Piece(("{x}, halved and rounded down", "half of {x}, rounded down"), "{v} // 2"),
    Piece(("the distances of {x} from {k}",), "abs({v} - {k})", _WIDE),
)
WORD_FILTERS = (
    Piece(("are longer than {k} letters", "have more than {k} letters"), "len({v}) > {k}", _SMALL),
    Piece(
        ("are shorter than {k} letters", "have fewer than {k} letters"), "len({v}) < {k}", _SMALL
    ),
    Piece(("have exactly {k} letters", "are {k} letters long"), "len({v}) == {k}", _SMALL),
    Piece(
        ("start with {k!r}", "begin with {k!r}"),
        "{v}.startswith({k!r})",
        tuple("abcdefghlmnoprstw"),
    ),
    Piece(("end with {k!r}", "end in {k!r}"), "{v}.endswith({k!r})", tuple("adeghlmnorsty")),
    Piece(("contain {k!r}", "include {k!r}"), "{k!r} in {v}", tuple("abcdefghiklmnoprstuw")),
    Piece(
        ("do not contain {k!r}", "lack {k!r}"), "{k!r} not in {v}", tuple("abcdefghiklmnoprstuw")
    ),
)
WORD_MAPS = (
    Piece(("{x}, in upper case", "{x}, in capitals"), "{v}.upper()"),
    Piece(("{x}, reversed", "{x}, spelled backwards"), "{v}[::-1]"),
    Piece(("{x}, capitalised", "{x}, with a capital first letter"), "{v}.capitalize()"),
    Piece(("the first letters of {x}",), "{v}[0]"),
    Piece(("the last letters of {x}",), "{v}[-1]"),
    Piece(("the first {k} letters of {x}",), "{v}[:{k}]", _SMALL),
    Piece(("{x}, with {k!r} added", "{x}, followed by {k!r}"), "{v} + {k!r}", tuple("!?.-_abxyz")),
    Piece(("{x}, repeated {k} times",), "{v} * {k}", _SMALL),
)
CHARACTER_FILTERS = (
    Piece(("are vowels",), "{v} in 'aeiou'"),
    Piece(("are not vowels",), "{v} not in 'aeiou'"),
    Piece(("are digits",), "{v}.isdigit()"),
    Piece(("are letters",), "{v}.isalpha()"),
    Piece(("are upper case", "are capitals"), "{v}.isupper()"),
    Piece(("are not spaces",), "{v} != ' '"),
    Piece(("equal {k!r}", "are {k!r}"), "{v} == {k!r}", tuple("abcdefghijklmnoprstuvwxyz")),
    Piece(
        ("are not {k!r}", "differ from {k!r}"), "{v} != {k!r}", tuple("abcdefghijklmnoprstuvwxyz")
    ),
    Piece(("come before {k!r}",), "{v} < {k!r}", tuple("cdefghijklmnoprstuvw")),
    Piece(("come after {k!r}",), "{v} > {k!r}", tuple("cdefghijklmnoprstuvw")),
)
CHARACTER_MAPS = (
    Piece(("{x}, in upper case", "{x}, in capitals"), "{v}.upper()"),
    Piece(("{x}, each doubled", "{x}, each written twice"), "{v} * 2"),
    Piece(
        ("{x}, each followed by {k!r}", "{x}, with {k!r} after each"),
        "{v} + {k!r}",
        tuple("-_.,+*"),
    ),
)

NUMBER_REDUCTIONS = (
    Piece(("the sum of {x}", "the total of {x}"), "sum({x})"),
    Piece(
        ("the largest of {x}, or 0 if there is none", "the maximum of {x}, or 0"),
        "max(({x}), default=0)",
    ),
    Piece(
        ("the smallest of {x}, or 0 if there is none", "the minimum of {x}, or 0"),
        "min(({x}), default=0)",
    ),
)
TEXT_REDUCTIONS = (
    Piece(
        ("{x}, joined by {k!r}", "{x}, with {k!r} between them"), "{k!r}.join({x})", tuple("-_,+/;")
    ),
)
LIST_REDUCTIONS = (
    Piece(("a list of {x}", "the list of {x}", "all of {x} in a list"), "[{x}]"),
    Piece(("a sorted list of {x}", "{x} in sorted order"), "sorted({x})"),
    Piece(("{x}, sorted from high to low", "{x} in falling order"), "sorted(({x}), reverse=True)"),
    Piece(("a sorted list of the different values of {x}",), "sorted(set({x}))"),
)


@dataclass(frozen=True)
class Kit:
    """The pieces that fit together: elements of one type and the type's annotation."""

    sources: tuple[ElementSource, ...]
    filters: tuple[Piece, ...]
    maps: tuple[Piece, ...]
    element: str


NUMBERS = Kit(NUMBER_SOURCES, NUMBER_FILTERS, NUMBER_MAPS, "int")
WORDS = Kit(WORD_SOURCES, WORD_FILTERS, WORD_MAPS, "str")
CHARACTERS = Kit(CHARACTER_SOURCES, CHARACTER_FILTERS, CHARACTER_MAPS, "str")
_SINGULAR = {"are": "is", "have": "has", "exceed": "exceeds", "differ": "differs", "end": "ends"}


def singular(phrase: str) -> str:
    """Turn a filter's phrase about several elements into one about a single element."""
    verb, rest = phrase.split(" ", 1)
    return f"{_SINGULAR.get(verb, verb)} {rest}"
