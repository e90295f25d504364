"""Does the calibration behind a trial's thresholds speak of what the trial asks?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import sha256
from harness.core.names import BUNDLED, HUB
from harness.core.nouns import BackendInfo, Trial, Workload

SCORER = "scorer"
"""Option of own prompts that decides no answer: a calibration without one asked for no score."""
TRAIN = {"split": "train"}
"""What a calibration reads unless it is told otherwise. A trial that asks for it reads the same."""


def calibrated_otherwise(trial: Trial, info: BackendInfo) -> list[str]:
    """The remark on thresholds whose calibration is of other workloads, of longer or shorter
    answers, or of rows from elsewhere or chosen otherwise; empty where it speaks of this trial."""
    limits, name = info.measured.calibration_limits, trial.workload.name
    if limits is None:
        return []
    if name not in limits:
        differ = [(", ".join(limits), name)]
    else:
        data = (info.measured.calibration_data or {}).get(name, {})
        differ = [*_length(limits[name], trial), *_rows(data, trial.workload)]
    if not differ:
        return []
    told = "; ".join(f"of {there}, and not of {here}" for there, here in differ)
    return [f"calibrated-otherwise: the thresholds' calibration is {told}"]


def _length(most: int | None, trial: Trial) -> Iterator[tuple[str, str]]:
    if most not in (None, trial.max_new_tokens):
        yield f"answers of at most {most} tokens", str(trial.max_new_tokens)


def _rows(data: Mapping[str, Any], workload: Workload) -> Iterator[tuple[str, str]]:
    """What differs in the rows, there and here. An older file says no more than their source, or
    nothing at all."""
    if data.get("rows", workload.name) != workload.name:
        yield f"rows of {data['rows']} in its form", workload.name
    if "source" in data and not _is_same(data, workload.source):
        yield f"source {data['source']}{_shown(data.get('sha256'))}", workload.source
    there, here = (TRAIN | dict(given) for given in (data.get("options", {}), workload.options))
    if data:
        for key in dict.fromkeys((*there, *here)):
            if there.get(key) != here.get(key) and (key != SCORER or key in there):
                yield f"{key} {there.get(key, 'unset')}", str(here.get(key, "unset"))


def _is_same(data: Mapping[str, Any], source: str) -> bool:
    """By content where that is known: a file may be moved, and another take its name."""
    if source in (BUNDLED, HUB) or data["source"] in (BUNDLED, HUB):
        return bool(source == data["source"])
    path, known = Path(source).expanduser(), data.get("sha256")
    if known is not None:
        try:
            state = path.stat()
            return bool(_digest(path.resolve(), state.st_size, state.st_mtime_ns) == known)
        except (OSError, UserError):
            return False
    return path.resolve() == Path(data["source"]).expanduser().resolve()


@functools.lru_cache(maxsize=16)
def _digest(path: Path, size: int, changed_ns: int) -> str:
    """Read once, not for each of a sweep's trials."""
    return sha256(path)


def _shown(digest: str | None) -> str:
    return "" if digest is None else f" (sha256 {digest[:12]})"
