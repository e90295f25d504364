"""Which tool a file is of, and the loads in it."""

from __future__ import annotations

import math
from pathlib import Path

from harness.core.errors import UserError
from results.imports.aiperf import is_aiperf, read_aiperf
from results.imports.foreign import ForeignLoad
from results.imports.guidellm import is_guidellm, read_guidellm
from results.imports.told import read_objects
from results.imports.vllm_bench import LISTS, read_vllm_bench

EXPECTED = (
    "expected what 'vllm bench serve --save-result --save-detailed', 'guidellm run --output "
    "kind=json' or 'aiperf profile' writes"
)
_OF_VLLM = {*LISTS, "request_throughput", "max_concurrency"}


def read_foreign(path: Path) -> list[ForeignLoad]:
    """The loads in a file, or in AIPerf's folder of artifacts. Raises `UserError`."""
    try:
        found = _read(path)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        told = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: holds what no such tool writes ({told}); {EXPECTED}") from None
    for load in found:
        rate = load.load.rate
        if rate is not None and not 0 < rate < math.inf:
            raise UserError(f"{path}: a rate is {rate}; expected more than 0 requests a second")
    return found


def _read(path: Path) -> list[ForeignLoad]:
    if path.is_dir():
        return read_aiperf(path)
    told = next(read_objects(path))
    is_vllm = bool(_OF_VLLM & told.keys())
    if is_aiperf(told) or (path.suffix == ".jsonl" and not is_vllm):
        return read_aiperf(path)
    if is_guidellm(told):
        return read_guidellm(path)
    if not is_vllm:
        raise UserError(f"{path}: of no known tool; {EXPECTED}")
    return read_vllm_bench(path)
