"""The prompts of a run's workloads: as a pandas frame, and how long each request's is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core.names import row_id
from harness.core.nouns import Workload
from results.metrics.arrays import Floats

if TYPE_CHECKING:
    import pandas as pd

PROMPT_COLUMNS: Mapping[str, str] = {
    "workload": "",
    "workload_checksum": "pins its prompts; two workloads may have the same request ids",
    "request_id": "`prompt_id` of the requests that ask it",
    "prompt_text": "",
    "prompt_tokens": "",
    "answer": "the right one, where there is one",
}

PromptLengths = Callable[[str], Mapping[str, int]]
"""Tokens of a workload's prompts by request_id, as far as they are known, by its checksum."""


def prompt_frame(
    workloads: Iterable[Workload], read: Callable[[str], Sequence[Mapping[str, Any]]]
) -> pd.DataFrame:
    """One row per stored prompt of each workload, with `PROMPT_COLUMNS`. `read`: by checksum."""
    import pandas as pd

    names = {w.checksum: w.name for w in workloads if w.checksum is not None}
    rows = [
        {"workload": name, "workload_checksum": checksum, **row}
        for checksum, name in names.items()
        for row in read(checksum)
    ]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(PROMPT_COLUMNS))


def asked_prompts(ids: Sequence[str], lengths: Mapping[str, int]) -> tuple[list[str], Floats]:
    """Of a trial's R requests: the ids of their prompts' rows, which a prompt that is asked again
    shares, and (R,) their tokens, NaN where not known. `lengths`: of the trial's workload."""
    known = lengths.keys() | set(ids)
    rows = [row_id(request_id, known) for request_id in ids]
    return rows, np.array([lengths.get(row, np.nan) for row in rows], float)
