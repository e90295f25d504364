"""What the early-exit engines are asked: requests, each with the poll before which it comes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.nouns import Request

Load = Sequence[tuple[int, Request]]
RESET = 21
"""The poll before which the load of `again` is cut off."""


def waves(vocabulary: int, *, seed: int = 0, count: int = 16, every: int = 2) -> list[Any]:
    """Requests that join one after another until `count` decode together, and leave one by one."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        length = draw.choice([1, 2, 3, draw.randint(4, 40)])
        tokens = every * (count - number) + 3 + (5 * number) % 13
        found.append((number * every, ask(f"wave-{number}", length, tokens, vocabulary, draw)))
    return found


def ask(name: str, length: int, tokens: int, vocabulary: int, draw: random.Random) -> Request:
    """A request with a random prompt."""
    return Request(name, tuple(draw.randrange(vocabulary) for _ in range(length)), tokens)


def again(load: Load) -> Load:
    """The first of a load, which a reset will end, and the whole load after the reset."""
    anew = [(at + RESET + 2, replace(r, id=f"again-{r.id}")) for at, r in load]
    return [*((at, r) for at, r in load if at < RESET), *anew]


def pieces(vocabulary: int) -> list[Any]:
    """Prompts cut into pieces, of which the last is often one token, beside ones that decode."""
    draw = random.Random(5)
    lengths = [17, 33, 5, 49, 1, 18, 40, 65, 2, 34, 16, 81]
    return [
        (2 * n + n % 2, ask(f"piece-{n}", length, 10 + 3 * (n % 5), vocabulary, draw))
        for n, length in enumerate(lengths)
    ]


def crowd(vocabulary: int) -> list[Any]:
    """Answers that together outgrow few blocks, so that some have to give way and begin again."""
    draw = random.Random(9)
    lengths = [9, 30, 3, 41, 12, 60, 1, 25]
    return [(n, ask(f"crowd-{n}", x, 40 + 7 * n, vocabulary, draw)) for n, x in enumerate(lengths)]


def conversations(vocabulary: int) -> list[Any]:
    """Prompts with beginnings that were computed before: all of them but one token, some blocks
    only, and (second turns) answers whose cache was filled by exits."""
    draw = random.Random(8)
    first = ask("first", 64, 40, vocabulary, draw)
    whole = replace(first, id="whole", max_new_tokens=12)
    longer = Request("longer", (*first.prompt_ids, 5), 14)
    half = Request("half", (*first.prompt_ids[:32], *range(20)), 9)
    other = ask("other", 7, 50, vocabulary, draw)
    return [
        (0, first),
        (1, other),
        (6, whole),
        (8, longer),
        (9, half),
        (30, replace(whole, id="w")),
    ]


def prompts(model: Path) -> list[Any]:
    """Real prompts, which join every third poll."""
    from transformers import AutoTokenizer

    from workloads.bundled import rows
    from workloads.prompts import encode_prompt

    tokenizer = AutoTokenizer.from_pretrained(model)
    found = []
    for number, name in enumerate(["gsm8k", "xsum", "humaneval", "gsm8k", "cnn_dailymail"]):
        row = rows(name, "test", number + 1)[number]
        ids = tuple(encode_prompt(tokenizer, name, row, 200))
        found.append((3 * number, Request(f"{name}-{number}", ids, 36 - 4 * number)))
    return found
