"""What the stages of a pipeline did, from counts that its backend puts into telemetry.

A pass is of many requests: counts go out with whichever token is told next, so that they mean
something only added up over a trial. I is a stage, from 1.

| count | meaning |
|---|---|
| `stage_passes_I` | batches of tokens after the prompts' that went through the stage |
| `stage_rows_I` | their rows: one for each token under way |
| `stage_layers_I` | layer passes of those rows |
| `stage_left_I` | tokens told behind the stage; untold where the last one verifies all |
| `stage_filled_I` | positions that left before the stage, whose keys and values it filled in |
| `stage_pass_us_I` | microseconds of the passes, with the fills that went ahead of them |
| `stage_other_us_I` | microseconds of prompts, and of fills alone |
| `stage_worker_us_I` | microseconds that its workers had, added up; untold: it has one |
| `stage_replaced_I` | its processes that died or hung and were replaced |
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from results.metrics.work import Counts

NAMES = (
    "passes",
    "rows",
    "layers",
    "left",
    "filled",
    "pass_us",
    "other_us",
    "worker_us",
    "replaced",
)
_COUNT = re.compile(rf"stage_({'|'.join(NAMES)})_(\d+)")


def by_stage(sums: Mapping[str, float], seconds: float | None) -> Counts | None:
    """For each stage, from 1, its counts and `window_us`, the time that it could have worked:
    first submit to last commit; its `worker_us` are those where nobody told of workers. Where a
    trial had several plans its stages are added up by number. None where no stage told of passes,
    or no time passed."""
    if seconds is None:
        return None
    found: dict[int, dict[str, float]] = {}
    for name, value in sums.items():
        if match := _COUNT.fullmatch(name):
            found.setdefault(int(match[2]), dict.fromkeys(NAMES, 0.0))[match[1]] = value
    window_us = 1e6 * seconds
    return {
        str(stage): {
            **found[stage],
            "worker_us": found[stage]["worker_us"] or window_us,
            "window_us": window_us,
        }
        for stage in sorted(found)
    } or None
