"""What ``run --dry-run`` checks beyond a run's own beginning, and prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from harness.cli import display, wiring
from harness.cli.asked.beforehand import traces
from harness.cli.folders.run_folder import check_writing
from harness.core.nouns import Trial
from harness.experiment.config import Experiment
from harness.experiment.loads import RateSweep
from results.store.folder import Store

KNOCK_S = 2.0
"""How long a server may take to accept a connection."""


def tell_plan(
    experiment: Experiment,
    sweep: RateSweep | None,
    store: Store,
    trials: Sequence[Trial],
    more: Sequence[Trial],
    notes: Callable[[Trial], str],
) -> None:
    """Find out what can be before an engine is loaded, and print what would run.

    Args:
        experiment: whose models are looked at.
        sweep: its loads that are found while it runs.
        store: where results would go.
        trials: those that are timed.
        more: those that are only judged.
        notes: what is said of a trial.

    Raises:
        UserError: for a tokenizer that cannot be used and a folder that cannot be written to.
    """
    from backends.http.route import unreachable

    everything = [*trials, *more]
    for model in experiment.models:
        wiring.check_tokenizer(model)
    check_writing(store)
    for url in dict.fromkeys(t.options["base_url"] for t in everything if "base_url" in t.options):
        if told := unreachable(url, KNOCK_S):
            print(f"warning: {url}: {told}; a run would fail now", file=sys.stderr)
    display.print_plan(everything, notes)
    for line in traces(trials):
        print(line)
    if sweep is not None:
        print(f"and of each system a sweep of {sweep.points} rates from idle to saturation")
