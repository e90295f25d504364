"""A small trace, made by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from results.traces.recorded import DecisionTrace, TraceRow

NAN = math.nan


def made_row(request_id: str = "gsm8k-1", **changes: Any) -> TraceRow:
    """Five tokens; at position 1 a draft that was thrown away, and made anew."""
    base = TraceRow(
        workload="gsm8k",
        request_id=request_id,
        prompt_tokens=7,
        answer_tokens=5,
        finished="stop",
        positions=np.array([0, 1, 2, 1, 3], np.int32),
        confidence=np.array(
            [[0.9, NAN], [0.2, 0.8], [0.7, NAN], [0.3, 0.6], [0.1, 0.2]], np.float32
        ),
        agrees=np.array([[1, -1], [0, 0], [-1, -1], [1, 1], [0, 1]], np.int8),
        drafted=np.array([3, 0], np.int32),
        accepted=np.array([1, 0], np.int32),
        batch=np.array([2, 1], np.int32),
    )
    return dataclasses.replace(base, **changes)


def made_trace(**changes: Any) -> DecisionTrace:
    """Two exits in a model of 8 layers."""
    base: dict[str, Any] = {
        "method": "adadecode",
        "depth": 8,
        "exits": (2, 6),
        "thresholds": (0.6, 0.75),
        "settings": {"max_drafts": 5},
        "model": "demo",
        "checksum": "c0ffee",
        "rows": (made_row(), made_row("gsm8k-2", answer_tokens=9, finished="length")),
    }
    return DecisionTrace(**{**base, **changes})
