"""Arithmetic drills: sums to copy and work out, denser in computing than the word problems."""

from collections.abc import Iterator
from typing import Any

from backends.training.rows.tokenizer import END
from workloads.bundled.draw import Draw

SUMS = 8


def drill_texts(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield `count` drills: a line of sums, and the same sums worked out on lines of their own."""
    for number in range(count):
        draw = Draw(f"drills/{seed}/{number}")
        sums = [_sum(draw) for _ in range(SUMS)]
        question = "Compute: " + "; ".join(f"{a} {sign} {b}" for a, sign, b, _ in sums)
        yield question, "\n".join(f"{a} {sign} {b} = {c}" for a, sign, b, c in sums)


def drill_prompts(tokenizer: Any, count: int, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield drills as prompt ids in the chat template, and answer ids with the stop token."""
    for question, worked in drill_texts(count, seed):
        messages = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer.encode(text, add_special_tokens=False)
        yield prompt, [*tokenizer.encode(worked, add_special_tokens=False), END]


def _sum(draw: Draw) -> tuple[int, str, int, int]:
    """Draw a sum of the sizes that word problems have: (left, sign, right, result)."""
    sign = draw.choose("+++---*/")
    small = draw.chance(0.6)
    if sign == "+":
        left, right = draw.integer(2, 99 if small else 180), draw.integer(2, 60)
        return left, sign, right, left + right
    if sign == "-":
        left = draw.integer(5, 99 if small else 230)
        right = draw.integer(1, min(left, 60 if draw.chance(0.8) else 200))
        return left, sign, right, left - right
    if sign == "*":
        left, right = draw.integer(2, 30 if small else 12), draw.integer(2, 9)
        if draw.chance(0.2):
            left, right = draw.integer(2, 80), draw.choose((2, 3))
        left, right = (right, left) if left <= 12 and draw.chance(0.5) else (left, right)
        return left, sign, right, left * right
    right, result = draw.integer(2, 9), draw.integer(1, 30)
    if draw.chance(0.5):
        right, result = 2, draw.integer(2, 110)
    return right * result, sign, right, result
