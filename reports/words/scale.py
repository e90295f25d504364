"""How far the numbers reach: what of a run was made up here or replayed, and how small its model
is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.core.names import BUNDLED
from reports.text import clipped, visible

if TYPE_CHECKING:
    from harness.core.nouns import Measured, TrialRecord
    from results import Run

SMALL = "demo"
STATED = "what the experiment states"
HOLDS = "Where that does not hold, no ratio does."


def banner(run: Run) -> str:
    """What a run of the bundled model, of generated prompts, or of replayed decisions, says nothing
    about; empty for a run of none of them."""
    every = [stored.record for stored in run.stored]
    records = [record for record in every if not record.is_replay]
    return " ".join(filter(None, (_bundled(records), _replayed(every))))


def _replayed(records: Sequence[TrialRecord]) -> str:
    """What replays do not tell."""
    replays = [record for record in records if record.is_replay]
    if not replays:
        return ""
    made = " and the weights are random" * all(record.trial.model.shape for record in replays)
    some = "" if len(replays) == len(records) else " of the rows marked so"
    given = {isinstance(record.trial.options.get("replay"), Mapping) for record in replays}
    whose = " or ".join(STATED if rates else "another model's" for rates in sorted(given))
    end = "On yours it differs, and with it every ratio." if False in given else HOLDS
    return (
        f"Decisions{some} were replayed{made}: times are measured, but how often exits, "
        f"predictions and drafts succeed is {whose}. {end}"
    )


def _bundled(records: Sequence[TrialRecord]) -> str:
    small = [record for record in records if record.trial.model.name == SMALL]
    asked = [record.trial.workload for record in records]
    others = {workload.name for workload in asked if workload.source != BUNDLED}
    made = list(dict.fromkeys(w.name for w in asked if w.source == BUNDLED))
    if not (small or made):
        return ""
    found = []
    if small:
        found.append(f"The model is the bundled one, {_device(small)}{_size(small)}.")
    if made:
        told = ", ".join(f"{name} (bundled)" if name in others else name for name in made)
        names = f"The prompts of {visible(clipped(told, 90))}" if others else "All prompts"
        found.append(f"{names} are generated stand-ins, not rows of the data sets of these names.")
    about = [*["models"] * bool(small), *["data sets"] * bool(made)]
    larger = ": a model of 8B may rank them otherwise" * bool(small)
    found.append(f"Nothing here is about real {' or '.join(about)}{larger}.")
    return " ".join(found)


def _size(records: Iterable[TrialRecord]) -> str:
    """How much a token reads, as the first engine that counts it says."""
    for info in (record.backend for record in records if record.backend is not None):
        if total := read_bytes(info.measured):
            return f"; a token reads {total / 1e6:.0f} MB of it (of an 8B model 16,000)"
    return ""


def read_bytes(measured: Measured) -> int:
    """Bytes of weights that a pass through the whole model reads; 0 where nobody counted them."""
    read = measured.pass_bytes
    return read["layers"] * read["layer"] + read["head"] if read else 0


def _device(records: Iterable[TrialRecord]) -> str:
    gpus = [str(gpu) for record in records for gpu in record.environment.get("gpus") or ()]
    return f"on {visible(clipped(gpus[0], 60))}" if gpus else "on a CPU"
