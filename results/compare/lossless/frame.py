"""The verdicts on texts as a tidy pandas frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from harness.core.nouns import canonical_json, to_json
from results.compare.lossless.verdicts import BackendText
from results.frame import variant_text

TEXT_COLUMNS: Mapping[str, str] = {
    "backend": "string",
    "options": "string",
    "variant": "string",
    "label": "string",
    "model": "string",
    "dtype": "string",
    "machine": "string",
    "setting": "string",
    "against": "string",
    "is_reference": "bool",
    "promised": "boolean",
    "verdict": "string",
    "why": "string",
    "pairs": "int64",
    "equal": "int64",
    "consistency": "float64",
    "requests": "int64",
    "low": "float64",
    "high": "float64",
    "noise_floor": "float64",
    "fork_request": "string",
    "fork_token": "float64",
    "fork_margin": "float64",
    "surest": "float64",
    "p_value": "float64",
    "distance": "float64",
}
"""Dtypes by column. They are `BackendText`'s fields; `options` and `setting` are JSON text, `label`
the variant where the experiment gives none, and `fork` is taken apart."""


def text_frame(found: Iterable[BackendText]) -> pd.DataFrame:
    """One row per backend and what its text is held against, with the columns of `TEXT_COLUMNS`.
    Undefined values are NaN or NA."""
    rows = [_row(one) for one in found]
    return pd.DataFrame(rows, columns=list(TEXT_COLUMNS)).astype(dict(TEXT_COLUMNS))


def _row(one: BackendText) -> dict[str, Any]:
    variant = variant_text(one.backend, one.options)
    fork = one.fork or {"request": None, "token": None, "margin": None}
    made = {
        "options": canonical_json(to_json(one.options)),
        "setting": canonical_json(to_json(one.setting)),
        "variant": variant,
        "label": one.label or variant,
        **{f"fork_{name}": value for name, value in fork.items()},
    }
    return {name: made[name] if name in made else getattr(one, name) for name in TEXT_COLUMNS}
