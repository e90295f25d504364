"""Whether a backend's text is another's, as `results.compare.lossless` judges it, for its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from results.compare.lossless.verdicts import BackendText
from results.compare.pairing import variant as identity

if TYPE_CHECKING:
    from results import Run


def by_cell(
    texts: Sequence[BackendText], cells: Sequence[Mapping[str, Any]], run: Run
) -> list[Mapping[str, BackendText]]:
    """For each cell, as `results.rows.cells` has it, the verdicts on its backend's text on its
    model, dtype and machine, over all cells: by the metric that holds the same answers against the
    same backend."""
    reference = run.experiment.get("reference")
    records = [stored.record for stored in run.stored]
    machines = {r.key: str(r.environment.get("fingerprint") or "") for r in records}
    found: dict[tuple[str, ...], dict[str, BackendText]] = {}
    for one in texts:
        if not one.is_reference:
            key = identity(one.backend, one.options), one.model, one.dtype, one.machine
            metric = "consistency_ratio" if one.against == reference else "consistency_native"
            found.setdefault(key, {})[metric] = one
    return [
        found.get((identity(c["backend"], c["options"]), c["model"], c["dtype"], machine), {})
        for c in cells
        for machine in [machines[c["keys"][0]]]
    ]
