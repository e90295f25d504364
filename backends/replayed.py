"""What a replay plays to requests that were not recorded, or not to their end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backends import asking, load_class, settings
from backends.checkpoints import traces
from harness.core.errors import UserError
from harness.core.files import user_path
from harness.core.nouns import Trial
from results.traces.recorded import DecisionTrace
from workloads.measured import MeasuredPrompt

RECORD = "record"
"""The option of a backend that decides more than how long answers are."""


def replay_remarks(trial: Trial, model_dir: Path, prompts: Sequence[MeasuredPrompt]) -> list[str]:
    """That the trace has no request of the trial's workload, and how many of its prompts replay an
    answer that was cut as it was recorded. Empty where no trace is replayed, or none that can be
    read, which opening it says."""
    try:
        trace = _trace(trial, model_dir)
    except (UserError, OSError):
        return []
    if trace is None:
        return []
    name, found = trial.workload.name, []
    ends = {
        prompt.request_id: prompt.longest(trial.max_new_tokens)
        for prompt in prompts
        if not trial.ignore_eos and prompt.output_tokens is None
    }
    decides = RECORD in load_class(trial.backend).OPTIONS
    if name not in trace.workloads and (ends or decides):
        found.append(
            f"the trace has no request of workload '{name}', and what is replayed is that of "
            f"{', '.join(trace.workloads)}"
        )
    rows = [(trace.row_for(key, most, ignore_eos=False), most) for key, most in ends.items()]
    cut = sum(row.finished == "length" and row.answer_tokens < most for row, most in rows)
    if cut:
        found.append(
            f"{cut} of {len(prompts)} prompts of workload '{name}' replay an answer that was cut "
            "as it was recorded, and ends there; 'ignore_eos: true' goes on"
        )
    return found


def _trace(trial: Trial, model_dir: Path) -> DecisionTrace | None:
    """None where nothing is replayed, or rates."""
    replay, name = trial.options.get("replay"), trial.backend
    if not isinstance(replay, str):
        return None
    if replay != traces.DEMO:
        return traces.read(user_path(replay, f"backend '{name}': option 'replay'"))
    with asking(name, "files"):
        files = load_class(name).files(model_dir, settings(name, trial.options))
    return next((traces.read(path) for path in files if path.parent == traces.BUNDLED), None)
