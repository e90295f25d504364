"""A real sweep of 32 short trials into the folder named on the command line; see test_kill.py."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.core.nouns import Trial
from harness.measure.fleet import Fleet
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.sweep import SweepEvent, run_sweep
from results.store.folder import Store
from tests.support.harness.sessions import make_trial, open_session


def trials() -> list[Trial]:
    return [
        make_trial(seed, repeat, requests=10, tokens=engine, ttft_s=0.04, test={"opened": "opened"})
        for engine in (1, 2)
        for repeat in range(4)
        for seed in range(4)
    ]


def main(folder: Path) -> None:
    def tell(event: SweepEvent) -> None:
        if event.kind in ("started", "finished"):
            print(event.kind, event.index, flush=True)

    machine = environment()
    with Fleet(open_session, folder / "logs") as fleet:
        result = run_sweep(
            trials(),
            Store(folder),
            fleet,
            environment=machine,
            fingerprint=fingerprint(machine),
            events=tell,
        )
    print("done", dict(result.statuses), result.stored, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
