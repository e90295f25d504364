"""What the pieces of bundled programs say in English is what their Python computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workloads.bundled import program_parts as parts
from workloads.bundled.draw import Draw
from workloads.bundled.program_shapes import Elements, FunctionShape, _judgement, _value

Meaning = Callable[[int, int], object]

FILTERS: dict[str, Meaning] = {
    "are even": lambda v, k: v in range(-100, 101, 2),
    "are odd": lambda v, k: v in range(-99, 101, 2),
    "are positive": lambda v, k: v >= 1,
    "are not zero": lambda v, k: bool(v),
    "are greater than {k}": lambda v, k: v - k > 0,
    "are less than {k}": lambda v, k: k - v > 0,
    "are at least {k}": lambda v, k: v > k or v == k,
    "are at most {k}": lambda v, k: v < k or v == k,
    "are not {k}": lambda v, k: v - k != 0,
    "are divisible by {k}": lambda v, k: v // k * k == v,
    "are not divisible by {k}": lambda v, k: v // k * k != v,
}
MAPS: dict[str, Meaning] = {
    "the squares of {x}": lambda v, k: abs(v) ** 2,
    "the cubes of {x}": lambda v, k: v * v * v,
    "{x}, doubled": lambda v, k: v + v,
    "{x}, multiplied by {k}": lambda v, k: sum([v] * k),
    "{x}, increased by {k}": lambda v, k: k + v,
    "{x}, reduced by {k}": lambda v, k: -(k - v),
    "{x}, negated": lambda v, k: 0 - v,
    "{x}, modulo {k}": lambda v, k: v - v // k * k,
    "{x}, halved and rounded down": lambda v, k: (v - v % 2) // 2,
    "the distances of {x} from {k}": lambda v, k: max(v - k, k - v),
}


@pytest.mark.parametrize(
    ("pieces", "meanings"), [(parts.NUMBER_FILTERS, FILTERS), (parts.NUMBER_MAPS, MAPS)]
)
def test_number_pieces_mean_what_they_say(
    pieces: tuple[parts.Piece, ...], meanings: dict[str, Meaning]
) -> None:
    checked = 0
    for piece in pieces:
        meaning = meanings.get(piece.phrases[0])
        if meaning is None:
            continue
        checked += 1
        for k in piece.constants or (0,):
            computed = eval(f"lambda v: {piece.code.format(v='v', k=k)}")
            for v in range(-30, 61):
                assert computed(v) == meaning(v, int(k)), (piece.phrases[0], v, k)
    assert checked == len(meanings) >= len(pieces) - 1


def test_the_last_digit_is_read_of_natural_numbers() -> None:
    (piece,) = (p for p in parts.NUMBER_FILTERS if p.phrases[0] == "end in {k}")
    for k in piece.constants:
        test = eval(f"lambda v: {piece.code.format(v='v', k=k)}")
        assert all(test(v) == str(v).endswith(str(k)) for v in range(200))


@pytest.mark.parametrize("kit", [parts.NUMBERS, parts.WORDS, parts.CHARACTERS])
def test_every_piece_compiles_with_every_constant(kit: parts.Kit) -> None:
    for piece in kit.filters + kit.maps:
        for k in piece.constants or (None,):
            compile(piece.code.format(v="v", k=k), "piece", "eval")
            for phrase in piece.phrases:
                assert "{" not in phrase.format(k=k, x="the numbers")


@pytest.mark.parametrize(
    ("plural", "single"),
    [
        ("are even", "is even"),
        ("exceed 4", "exceeds 4"),
        ("cannot be divided by 3", "cannot be divided by 3"),
        ("have the last digit 2", "has the last digit 2"),
    ],
)
def test_singular_agrees_with_its_subject(plural: str, single: str) -> None:
    assert parts.singular(plural) == single


def test_elements_render_a_comprehension_and_a_program() -> None:
    source = parts.NUMBER_SOURCES[0]
    elements = Elements(source, "xs", "the numbers in xs", ("v > 3", "v % 2 == 0"), "v * v")
    assert elements.generator == "v * v for v in xs if v > 3 and v % 2 == 0"
    program = elements.program("int", "Sum.", f"return sum({elements.generator})")
    assert program == FunctionShape(
        "xs: list[int]) -> int",
        "Sum.",
        "    return sum(v * v for v in xs if v > 3 and v % 2 == 0)\n",
        ("list",),
    )
    scope: dict[str, Callable[[list[int]], int]] = {}
    exec(program.source("f"), scope)
    assert scope["f"]([2, 4, 5, 6]) == 52


def test_a_judgement_computes_what_its_sentence_asks() -> None:
    heads = {"all": "    return all(", "any": "    return any(", "none": "    return not any("}
    met = set()
    for number in range(200):
        program = _judgement(Draw(f"judgement/{number}"))
        word = program.sentence.removeprefix("Return whether ").split()[0]
        assert program.body.startswith(heads[word])
        met.add(word)
    assert met == set(heads)


def test_a_branch_s_results_compute_what_they_say() -> None:
    meanings: dict[str, Meaning] = {
        "plus": lambda a, b: a + b,
        "minus": lambda a, b: a - b,
        "times": lambda a, b: a * b,
        "the sum of": lambda a, b: sum([a, b]),
        "the product of": lambda a, b: a * b,
        "the square of": lambda a, b: a**2,
        "the larger of": lambda a, b: a if a > b else b,
        "the smaller of": lambda a, b: a if a < b else b,
        "": lambda a, b: a,
    }
    met = set()
    for number in range(400):
        english, code = _value(Draw(f"value/{number}"), "p", "q")
        names = [word for word in english.split() if word in "pq" or word.isdigit()]
        said = " ".join(w for w in english.split() if w not in {*names, "and"})
        met.add(said)
        for p, q in ((3, 8), (-4, 5), (29, 2)):
            a, b = [*(int(n) if n.isdigit() else {"p": p, "q": q}[n] for n in names), 0][:2]
            assert eval(code, {"p": p, "q": q}) == meanings[said](a, b), english
    assert met == set(meanings)
