"""The file ``gate.yaml``: read with care, and written by ``gate calibrate``.

alpha: 0.05
margins:
  - {metric: tpot_s, margin: 5%}
  - {metric: ttft_s, margin: 0.1, workload: gsm8k, load: closed c=8, backend: vllm}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from harness.core.errors import UserError, nearest
from harness.experiment.strict_yaml import read_yaml
from results.compare.gate.margins import ALPHA, GateRules, MarginRule, check_rule, is_count

KEYS = ("alpha", "margins")
RULE_KEYS = tuple(field.name for field in fields(MarginRule))
DIRECTIONS = ("larger", "smaller")


def read_rules(path: Path) -> GateRules:
    """The rules of a gate file. Raises `UserError`, which names the file and the key."""
    data = _mapping(read_yaml(path), str(path), KEYS)
    alpha = data.get("alpha", ALPHA)
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < 0.5:
        raise UserError(f"{path}: alpha: expected a number between 0 and 0.5, got {alpha!r}")
    margins = data.get("margins")
    if not isinstance(margins, list) or not margins:
        raise UserError(f"{path}: margins: expected a list of rules (metric, margin, ...)")
    rules = [_rule(item, f"{path}: margins[{place}]") for place, item in enumerate(margins)]
    return GateRules(tuple(rules), float(alpha), str(path))


def rules_text(rules: Sequence[MarginRule], alpha: float, comment: str) -> str:
    """The content of a gate file."""
    import yaml

    listed = [
        {
            name: value if is_count(rule.metric) else _written(value)
            for name in RULE_KEYS
            if (value := getattr(rule, name)) is not None
        }
        for rule in rules
    ]
    body = yaml.safe_dump({"alpha": alpha, "margins": listed}, sort_keys=False)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + body


def _written(value: str | float) -> str | float:
    """A margin of 1 or more with its sign, since a bare one is mostly a mistake."""
    return value if isinstance(value, str) or value < 1 else f"{100 * value:g}%"


def _rule(item: Any, where: str) -> MarginRule:
    data = _mapping(item, where, RULE_KEYS)
    for key in ("metric", "margin"):
        if key not in data:
            raise UserError(f"{where}: '{key}' is missing")
    for key, value in data.items():
        if key != "margin" and not isinstance(value, str):
            raise UserError(f"{where}: {key}: expected text, got {value!r}")
    way = data.get("direction")
    if way is not None and way not in DIRECTIONS:
        raise UserError(f"{where}: direction: unknown '{way}'; {nearest(way, DIRECTIONS)}")
    rule = MarginRule(**{**data, "margin": _margin(data["margin"], data["metric"], where)})
    check_rule(rule, where)
    return rule


def _margin(value: Any, metric: str, where: str) -> float:
    is_percent = isinstance(value, str) and value.strip().endswith("%")
    try:
        if isinstance(value, bool) or not (is_percent or isinstance(value, (int, float))):
            raise ValueError
        found = float(value.strip()[:-1]) / 100 if is_percent else float(value)
    except ValueError:
        raise UserError(f"{where}: margin: expected 0.05 or 5%, got {value!r}") from None
    if is_count(metric) and is_percent:
        raise UserError(f"{where}: margin: '{metric}' is a number of requests, got {value!r}")
    if not is_percent and 1 <= found < math.inf and not is_count(metric):
        raise UserError(
            f"{where}: margin: {value!r} is {100 * found:g}%; expected {value}% or "
            f"{100 * found:g}%, whichever is meant"
        )
    return found


def _mapping(data: Any, where: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        kind = "nothing" if data is None else type(data).__name__
        raise UserError(f"{where}: expected a mapping with {', '.join(keys)}, found {kind}")
    for key in data:
        if key not in keys:
            raise UserError(f"{where}: unknown key '{key}'; {nearest(str(key), keys)}")
    return data
