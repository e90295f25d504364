"""Word problems with worked answers, in GSM8K's fields: a story of one to five computing steps."""

from collections.abc import Callable
from dataclasses import dataclass, field

from workloads.bundled.draw import Draw
from workloads.bundled.splits import Subject
from workloads.bundled.words import FIRST_NAMES, ITEMS

MAX_VALUE = 240
"""Largest number in a story; single digits are single tokens, so this bounds the work per step."""


@dataclass
class Story:
    """A word problem under construction: what is told, what is computed, and the running value."""

    draw: Draw
    name: str
    friend: str
    items: str
    value: int = 0
    told: list[str] = field(default_factory=list)
    worked: list[str] = field(default_factory=list)
    shape: list[str] = field(default_factory=list)
    question: str = ""

    def tell(self, *variants: str, **facts: object) -> None:
        """Add one of the phrasings to the story, and the numbers among its facts to the shape."""
        self.shape += [f"{k}={v}" for k, v in sorted(facts.items()) if isinstance(v, int)]
        self.mention(*variants, **facts)

    def mention(self, *variants: str, **facts: object) -> None:
        """Add one of the phrasings to the story; its facts are no part of the shape."""
        told = self.draw.choose(variants).format(a=self.name, b=self.friend, i=self.items, **facts)
        self.told.append(told)

    def compute(self, left: int, sign: str, right: int, sentence: str) -> int:
        """Write a computing step into the worked answer and return its result."""
        result = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]
        step = f"{left} {sign} {right} = {result}"
        self.shape.append(step)
        self.worked.append(sentence.format(a=self.name, b=self.friend, i=self.items, x=step))
        return result


def _direct(s: Story) -> None:
    s.value = s.draw.integer(4, 80)
    s.tell(
        "{a} has {n} {i}.",
        "{a} starts the day with {n} {i}.",
        "There are {n} {i} in the basket of {a}.",
        "{a} owns {n} {i}.",
        n=s.value,
    )


def _groups(s: Story) -> None:
    k, m = s.draw.integer(2, 9), s.draw.integer(2, 12)
    s.tell(
        "{a} buys {k} packs with {m} {i} in each pack.",
        "{a} has {k} bags of {m} {i} each.",
        "{a} fills {k} shelves with {m} {i} each.",
        k=k,
        m=m,
    )
    s.value = s.compute(k, "*", m, "{a} has {x} {i}.")


def _rate(s: Story) -> None:
    k, m = s.draw.integer(2, 9), s.draw.integer(2, 12)
    unit = s.draw.choose(("hour", "day", "week"))
    s.tell(
        "{a} makes {m} {i} every {u} for {k} {u}s.",
        "For {k} {u}s, {a} collects {m} {i} per {u}.",
        k=k,
        m=m,
        u=unit,
    )
    s.value = s.compute(m, "*", k, "{a} gets {x} {i}.")


def _more_than(s: Story) -> None:
    n, k = s.draw.integer(4, 70), s.draw.integer(2, 40)
    s.tell(
        "{b} has {n} {i} and {a} has {k} more than {b}.",
        "{b} has {n} {i}. {a} has {k} more {i} than {b}.",
        n=n,
        k=k,
    )
    s.value = s.compute(n, "+", k, "{a} has {x} {i}.")


def _fewer_than(s: Story) -> None:
    n = s.draw.integer(20, 90)
    k = s.draw.integer(2, n - 8)
    s.tell(
        "{b} has {n} {i} and {a} has {k} fewer than {b}.",
        "{b} has {n} {i}. {a} has {k} fewer {i} than {b}.",
        n=n,
        k=k,
    )
    s.value = s.compute(n, "-", k, "{a} has {x} {i}.")


def _times_as_many(s: Story) -> None:
    n, k = s.draw.integer(3, 12), s.draw.integer(2, 9)
    s.tell(
        "{b} has {n} {i}, and {a} has {k} times as many.",
        "{a} has {k} times as many {i} as {b}, who has {n}.",
        n=n,
        k=k,
    )
    s.value = s.compute(n, "*", k, "{a} has {x} {i}.")


def _gain(s: Story) -> None:
    n = s.draw.integer(2, 60)
    s.tell(
        "{a} finds {n} more {i}.",
        "Then {a} buys {n} {i}.",
        "{b} gives {a} {n} {i}.",
        "{a} wins another {n}.",
        "A box with {n} more {i} arrives for {a}.",
        n=n,
    )
    s.value = s.compute(s.value, "+", n, "Then {a} has {x} {i}.")


def _loss(s: Story) -> None:
    n = s.draw.integer(1, min(60, s.value - 1))
    s.tell(
        "{a} loses {n} of them.",
        "Then {a} sells {n} {i}.",
        "{a} gives {n} {i} to {b}.",
        "{n} of the {i} break.",
        "{b} takes {n} of the {i} from {a}.",
        n=n,
    )
    s.value = s.compute(s.value, "-", n, "Then {a} has {x} {i}.")


def _double(s: Story) -> None:
    k, word = s.draw.choose(((2, "doubles"), (3, "triples"), (2, "doubles")))
    s.tell("{a} {w} the number of {i}.", "By evening {a} {w} them.", w=word)
    s.value = s.compute(s.value, "*", k, "Then {a} has {x} {i}.")


def _half(s: Story) -> None:
    s.tell("{a} gives half of the {i} away.", "Half of the {i} are sold.", "{b} gets half of them.")
    s.value = s.compute(s.value, "/", 2, "Then {a} has {x} {i}.")


def _packs_in(s: Story) -> None:
    k, m = s.draw.integer(2, 9), s.draw.integer(2, 12)
    s.tell("{a} buys {k} more packs of {m} {i}.", "{k} friends bring {a} {m} {i} each.", k=k, m=m)
    more = s.compute(k, "*", m, "That is {x} more {i}.")
    s.value = s.compute(s.value, "+", more, "Then {a} has {x} {i}.")


def _packs_out(s: Story) -> None:
    k = s.draw.integer(2, min(9, s.value // 3))
    m = s.draw.integer(2, max(2, min(12, (s.value - 1) // k)))
    s.tell("{a} gives {m} {i} to each of {k} friends.", "{a} sells {k} bags of {m} {i}.", k=k, m=m)
    gone = s.compute(k, "*", m, "That is {x} {i} fewer.")
    s.value = s.compute(s.value, "-", gone, "Then {a} has {x} {i}.")


def _depends(s: Story) -> None:
    limit, more, fewer = s.draw.integer(5, 90), s.draw.integer(2, 40), s.draw.integer(1, 4)
    s.tell(
        "If {a} has more than {t} {i}, {a} gives away {f}; if not, {a} buys {m}.",
        "With more than {t} {i}, {a} sells {f}, and otherwise {a} finds {m}.",
        t=limit,
        f=fewer,
        m=more,
    )
    if s.value > limit:
        s.value = s.compute(s.value, "-", fewer, f"More than {limit}, so {{a}} has {{x}} {{i}}.")
    else:
        s.value = s.compute(s.value, "+", more, f"Not over {limit}, so {{a}} has {{x}} {{i}}.")


def _ask_left(s: Story) -> None:
    s.question = s.draw.choose(
        (
            "How many {i} does {a} have now?",
            "How many {i} does {a} have?",
            "What number of {i} does {a} have in the end?",
        )
    )


def _ask_money(s: Story) -> None:
    price = s.draw.integer(2, max(2, min(9, MAX_VALUE // s.value)))
    s.tell(
        "{a} sells each of the {i} for {p} dollars.",
        "The {i} are sold at {p} dollars each.",
        p=price,
    )
    s.question = "How many dollars does {a} get?"
    s.value = s.compute(s.value, "*", price, "The price is {x} dollars.")


def _ask_each(s: Story) -> None:
    parts = [k for k in range(2, 10) if s.value % k == 0 and s.value // k <= 30]
    k = s.draw.choose(parts)
    s.tell("{a} shares them equally among {k} friends.", "{k} friends share the {i} equally.", k=k)
    s.question = "How many {i} does each friend get?"
    s.value = s.compute(s.value, "/", k, "Each friend gets {x} {i}.")


def _ask_together(s: Story) -> None:
    n = s.draw.integer(3, 60)
    s.tell("A sister of {a} has {n} {i}.", "{a} has a sister with {n} {i}.", n=n)
    s.question = "How many {i} do {a} and the sister have together?"
    s.value = s.compute(s.value, "+", n, "Together they have {x} {i}.")


def _ask_missing(s: Story) -> None:
    goal = s.value + s.draw.integer(2, 60)
    s.tell("{a} needs {g} {i}.", "The goal is to have {g} {i}.", g=goal)
    s.question = "How many {i} are still missing?"
    s.value = s.compute(goal, "-", s.value, "There are {x} {i} missing.")


Move = Callable[[Story], None]
OPENINGS: tuple[Move, ...] = (_direct, _groups, _rate, _more_than, _fewer_than, _times_as_many)
ENDINGS: tuple[Move, ...] = (
    _ask_left,
    _ask_left,
    _ask_left,
    _ask_money,
    _ask_each,
    _ask_together,
    _ask_missing,
)


def _moves(value: int) -> list[Move]:
    """Return the moves that keep a story with this running value in whole, bounded numbers."""
    moves: list[Move] = [_gain, _packs_in, _depends] if value <= MAX_VALUE - 110 else []
    moves += [_loss, _depends] if value >= 5 else []
    moves += [_packs_out] if value >= 8 else []
    moves += [_double] if value <= MAX_VALUE // 3 else []
    moves += [_half] if value % 2 == 0 and value >= 4 else []
    return moves


def _endings(value: int) -> list[Move]:
    """Return the endings possible with this running value."""
    shareable = any(value % k == 0 and value // k <= 30 for k in range(2, 10))
    return [
        end
        for end in ENDINGS
        if not (end is _ask_each and not shareable) and not (end is _ask_money and value > 30)
    ]


def _distract(s: Story) -> None:
    """Tell something with a number that the answer does not need."""
    other = s.draw.choose([item for item in ITEMS if item != s.items])
    s.mention(
        "{b} also has {n} {o}.",
        "There are {n} {o} on the table.",
        "{a} is {n} years old.",
        "It takes {n} minutes to count the {o}.",
        n=s.draw.integer(2, 60),
        o=other,
    )


def problem(draw: Draw) -> tuple[Subject, dict[str, str]]:
    """Return a problem's row and what it is about: its moves and numbers, those of distractors in
    the key alone."""
    name, friend = draw.pick(FIRST_NAMES, 2)
    story = Story(draw, name, friend, draw.choose(ITEMS))
    plan: list[Move] = [draw.choose(OPENINGS)]
    plan[0](story)
    for _ in range(draw.choose((0, 1, 1, 2, 2, 3))):
        move = draw.choose(_moves(story.value))
        move(story)
        plan.append(move)
        if draw.chance(0.15):
            _distract(story)
    ending = (
        draw.choose(_endings(story.value))
        if len(plan) > 1
        else draw.choose([end for end in _endings(story.value) if end is not _ask_left])
    )
    ending(story)
    plan.append(ending)
    question = story.question.format(a=name, b=friend, i=story.items)
    numbers = [word for line in story.told for word in line.split() if word[0].isdigit()]
    moves = [move.__name__ for move in plan]
    subject = Subject("/".join(moves + numbers), "/".join(["problem", *moves, *story.shape]))
    answer = "\n".join([*story.worked, f"#### {story.value}"])
    return subject, {"question": " ".join([*story.told, question]), "answer": answer}
