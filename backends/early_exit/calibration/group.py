"""Answers of prompts decoded together, as a calibration keeps them, and what is none refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.early_exit.calibration.files import is_number

_LARGEST_TOKEN = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AnsweredGroup:
    """What prompts decoded together were answered, and the work of their decode steps."""

    answers: tuple[tuple[int, ...], ...]
    """Token ids in the order of the prompts."""
    steps: float
    layers_run: float
    layers_total: float
    checks: float = 0.0
    """The four are sums over the decoded tokens."""


def read_group(content: Mapping[str, Any], batch: int) -> tuple[float | None, int, AnsweredGroup]:
    """Threshold, number and answers of `batch` prompts from a line of an answer file. Raises
    `KeyError`, `TypeError` or `ValueError` for what no calibration writes."""
    threshold, number, answers = content["threshold"], content["group"], content["answers"]
    if threshold is not None and not is_number(threshold):
        raise ValueError(f"threshold {threshold!r}")
    if type(number) is not int or number < 0:
        raise ValueError(f"group {number!r}")
    if not isinstance(answers, list) or not all(_is_answer(answer) for answer in answers):
        raise ValueError("answers: expected lists of token ids")
    if len(answers) != batch:
        raise ValueError(f"{len(answers)} answers in a group of {batch}")
    sums = {name: content[name] for name in ("steps", "layers_run", "layers_total")}
    sums["checks"] = content.get("checks", 0.0)
    for name, value in sums.items():
        if not is_number(value) or value < 0:
            raise ValueError(f"{name} {value!r}")
    return threshold, number, AnsweredGroup(tuple(map(tuple, answers)), **sums)


def read_opened(content: Mapping[str, Any]) -> dict[str, Any]:
    """What the backend said of itself: its layers, and its name and version. Raises `KeyError`,
    `TypeError` or `ValueError` for what no calibration writes."""
    found = dict(content["opened"])
    layers, backend = found["layers"], found["backend"]
    if not isinstance(layers, list) or not layers or not all(type(x) is int for x in layers):
        raise ValueError(f"layers {layers!r}")
    if not isinstance(backend, str):
        raise TypeError(f"backend {backend!r}")
    return found


def _is_answer(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(token) is int and 0 <= token <= _LARGEST_TOKEN for token in value
    )
