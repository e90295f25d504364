"""What a run does at its end about trials that were disturbed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from harness.cli.pins import Pins, whole_records
from harness.core.nouns import Trial, TrialRecord
from harness.experiment.config import Experiment
from harness.measure import again
from harness.measure.fleet import Fleet
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.sweep import SweepResult
from results.compare.pairing import NATIVE
from results.store.folder import Store


def measure_again(
    store: Store,
    trials: Sequence[Trial],
    experiment: Experiment,
    share: float,
    sweep: Callable[[Store, Sequence[Trial], float, Fleet, float], SweepResult],
    fleet: Fleet,
) -> None:
    """Measure disturbed ones of `trials` once more by `sweep` on the engines of `fleet`, in at most
    `share` of the time that the run took, and say what is."""
    stored = {key: found.record for key, found in whole_records(store)}
    if not any(again.state(record) == "disturbed" for record in stored.values()):
        return
    machine, pins = environment(), Pins()

    def record_of(trial: Trial) -> TrialRecord | None:
        return stored.get(trial.key(fingerprint(machine), pins.of(trial)))

    names = [name for name in (experiment.reference, NATIVE) if name is not None]
    # where not all fit side by side, one may have to go for another before its turn comes
    loaded = frozenset[str]() if fleet.crowded else fleet.loaded
    found = again.plan(trials, record_of, names, share, loaded)
    if not found.disturbed:
        return
    told = f"{found.disturbed} {'trial was' if found.disturbed == 1 else 'trials were'} disturbed"
    limit = f"{share:.0%} of the run's time, {found.budget_s:.0f} s"
    if not found.trials:
        print(f"{told}; none is measured again within --again-share ({limit})", file=sys.stderr)
        return
    print(
        f"{told}; measuring {found.chosen} again with what they are compared with: "
        f"{len(found.trials)} trials within --again-share ({limit})",
        file=sys.stderr,
    )
    fleet.start_over()
    done = sweep(store, found.trials, experiment.time_limit_s, fleet, found.budget_s)
    late = f", {done.left} not begun for want of time" if done.left else ""
    print(f"measured again: {done.statuses['ok']} of {len(found.trials)} trials{late}")
