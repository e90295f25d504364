"""Which engines a run loads for what it measures again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.run import run_experiment
from harness.core.names import STAND_IN
from harness.core.nouns import TrialRecord, Validity
from harness.measure.engine_process import EngineProcess
from results.store.folder import Store

EXPERIMENT = """
name: tiny
model: demo
reference: scripted
backends:
  - {name: scripted, ttft_s: 0.002, itl_s: [0.001, 0.002], tokens: 4}
workloads: [gsm8k]
load: [{kind: closed, concurrency: 2}]
requests: 4
repeats: 2
"""
NOISY = Validity(valid=False, reasons=("machine-noisy: others",))
SOUND = Validity(valid=True, reasons=())


def test_trials_measured_again_find_their_engines_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a run of its own each would be loaded once more. None outlives the run."""
    write, start = Store.write, EngineProcess.start
    started: list[EngineProcess] = []

    def write_noisy(store: Store, record: TrialRecord) -> None:
        noisy = record.trial.repeat == 1
        write(store, replace(record, validity=NOISY if noisy else SOUND))

    def note(engine: EngineProcess, *arguments: Any) -> Any:
        started.append(engine)
        return start(engine, *arguments)

    monkeypatch.setattr(Store, "write", write_noisy)
    monkeypatch.setattr(EngineProcess, "start", note)
    (tmp_path / "tiny.yaml").write_text(EXPERIMENT)
    run_experiment(
        tmp_path / "tiny.yaml",
        out=tmp_path / "run",
        only=None,
        fresh=False,
        dry_run=False,
        again_share=1.0,
    )
    assert "measured again: 2 of 2 trials" in capsys.readouterr().out
    store = Store(tmp_path / "run")
    repeats = sorted(store.read(key).trial.repeat for key in list(store.keys()))
    assert repeats == [0, 0, 1, 1, 1 + STAND_IN, 1 + STAND_IN]
    assert len(started) == 2
    assert not any(engine.is_alive() for engine in started)
