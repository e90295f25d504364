"""The workload `synthetic`: prompts of chosen lengths, made of tokens drawn at random.

`input_tokens` and `output_tokens` are numbers, or distributions of them; `prefix_tokens` go before
each prompt, the same ones for all requests of a prefix, of which there are `prefixes`. Answers have
exactly `output_tokens` tokens: no end of text ends them. The tokens say nothing, so that lengths,
loads and caches can be studied, but not how often drafts stand or how early a model could exit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError, nearest

if TYPE_CHECKING:
    import numpy as np

NAME = "synthetic"
OPTIONS = ("input_tokens", "output_tokens", "prefix_tokens", "prefixes")
DEFAULTS: Mapping[str, Any] = {
    "input_tokens": 512,
    "output_tokens": 128,
    "prefix_tokens": 0,
    "prefixes": 1,
}
MOST_INPUT = 1_000_000
MOST_OUTPUT = 32_768
MOST: Mapping[str, int] = {
    "input_tokens": MOST_INPUT,
    "output_tokens": MOST_OUTPUT,
    "prefix_tokens": MOST_INPUT,
    "prefixes": 10_000,
}
SHAPES: Mapping[str, tuple[str, ...]] = {
    "uniform": ("least", "most"),
    "normal": ("mean", "std"),
    "lognormal": ("median", "sigma"),
}
"""Distributions of a length, with what each needs; `least` and `most` bound the others too. Of
`lognormal`, which has the long tail of real traffic, sigma is the standard deviation of the
logarithm."""


def check(options: Mapping[str, Any]) -> None:
    """Check the options. Raises `UserError`."""
    for key, value in options.items():
        where = f"workload {NAME}: option '{key}'"
        if isinstance(value, Mapping) and key in ("input_tokens", "output_tokens"):
            _check_distribution(where, value, MOST[key])
            continue
        least = 0 if key == "prefix_tokens" else 1
        if type(value) is not int or not least <= value <= MOST[key]:
            expected = f"a whole number from {least} to {MOST[key]}"
            if key.endswith("put_tokens"):
                expected += ", or {distribution: " + "|".join(SHAPES) + ", ...}"
            raise UserError(f"{where}: expected {expected}, got {value!r}")


def _check_distribution(where: str, spec: Mapping[str, Any], limit: int) -> None:
    shape = spec.get("distribution")
    if not isinstance(shape, str) or shape not in SHAPES:
        near = nearest(str(shape), SHAPES)
        raise UserError(f"{where}: unknown distribution {shape!r}; {near}")
    known = dict.fromkeys(["distribution", *SHAPES[shape], "least", "most"])
    for key in spec:
        if key not in known:
            raise UserError(f"{where}: unknown key '{key}'; {nearest(str(key), known)}")
    for key in SHAPES[shape]:
        if key not in spec:
            raise UserError(f"{where}: a '{shape}' distribution needs the key '{key}'")
    for key, value in spec.items():
        if key == "distribution":
            continue
        whole = key in ("least", "most")
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        # bounded by comparison: no float holds every int
        if not (number and 0 <= value <= limit) or (key not in ("std", "sigma") and value < 1):
            low = 0 if key in ("std", "sigma") else 1
            kind = "whole number" if whole else "number"
            raise UserError(
                f"{where}: key '{key}': expected a {kind} from {low} to {limit}, got {value!r}"
            )
    least, most = _bounds(spec, limit)
    if least > most:
        raise UserError(f"{where}: 'least' is {least}, beyond 'most', which is {most}")


def _bounds(spec: Mapping[str, Any], limit: int) -> tuple[int, int]:
    return spec.get("least", 1), spec.get("most", limit)


def rows(options: Mapping[str, Any], seed: int, count: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield id and fields of `count` prompts: lengths, and what their tokens are drawn from. The
    same seed gives the same rows, and more of them begin with the fewer."""
    chosen = {**DEFAULTS, **options}
    for number in range(count):
        rng = _generator(f"{seed}:{number}")
        fields = {
            "input_tokens": _length(chosen["input_tokens"], rng, MOST_INPUT),
            "output_tokens": _length(chosen["output_tokens"], rng, MOST_OUTPUT),
            "prefix_tokens": chosen["prefix_tokens"],
            "prefix": int(rng.integers(chosen["prefixes"])),
            "draw": f"{seed}:{number}",
        }
        identity = str(number)
        yield identity, {name: str(value) for name, value in fields.items()} | {"id": identity}


def _length(spec: Any, rng: np.random.Generator, limit: int) -> int:
    if not isinstance(spec, Mapping):
        return int(spec)
    least, most = _bounds(spec, limit)
    if spec["distribution"] == "uniform":
        return int(rng.integers(least, most, endpoint=True))
    if spec["distribution"] == "normal":
        drawn = rng.normal(spec["mean"], spec["std"])
    else:
        # the exponent is bounded: beyond it everything is `most`
        drawn = math.exp(min(rng.normal(math.log(spec["median"]), spec["sigma"]), 50.0))
    return max(least, min(most, round(drawn)))


def ordinary_ids(tokenizer: Any) -> list[int]:
    """The ids of all tokens but the special ones and those added later."""
    special = set(tokenizer.all_special_ids)
    return [number for number in range(tokenizer.vocab_size) if number not in special]


def token_ids(ordinary: Sequence[int], row: Mapping[str, str]) -> list[int]:
    """The prompt of a row: its prefix and its own tokens, of the `ordinary` ones. Exactly as many
    ids as the row says, without a chat template."""
    seed = row["draw"].partition(":")[0]
    prefix = _drawn(ordinary, f"{seed}:prefix:{row['prefix']}", int(row["prefix_tokens"]))
    return prefix + _drawn(ordinary, f"{row['draw']}:tokens", int(row["input_tokens"]))


def _drawn(ordinary: Sequence[int], seed: str, count: int) -> list[int]:
    places = _generator(seed).integers(len(ordinary), size=count)
    return [ordinary[place] for place in places]


def _generator(seed: str) -> np.random.Generator:
    import numpy as np

    digest = hashlib.sha256(seed.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
