"""Whether a backend's text is another's, as `results.compare.lossless` judges it, for its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from results.compare.lossless.verdicts import BackendText
from results.compare.machines import settings
from results.compare.pairing import variant as identity

if TYPE_CHECKING:
    from results import Run


def by_cell(
    texts: Sequence[BackendText], cells: Sequence[Mapping[str, Any]], run: Run
) -> list[Mapping[str, BackendText]]:
    """For each cell, as `results.rows.cells` has it, the verdicts on its backend's text on its
    model, dtype and machine in its setting, over all cells: by the metric that holds the same
    answers against the same backend."""
    reference = run.experiment.get("reference")
    records = [stored.record for stored in run.stored]
    machines = {r.key: str(r.environment.get("fingerprint") or "") for r in records}
    own = settings(records)
    found: dict[tuple[Any, ...], dict[str, BackendText]] = {}
    for one in texts:
        if not one.is_reference:
            key = identity(one.backend, one.options), one.model, one.dtype, one.machine
            metric = "consistency_ratio" if one.against == reference else "consistency_native"
            found.setdefault((*key, *one.setting.items()), {})[metric] = one
    return [
        found.get((variant, c["model"], c["dtype"], machines[key], *own[key].items()), {})
        for c in cells
        for variant, key in [(identity(c["backend"], c["options"]), c["keys"][0])]
    ]
