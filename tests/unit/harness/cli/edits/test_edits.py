"""Sources that are edited while a run goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backends import pins as backend_pins
from harness.cli.against.checkout import Checkout, find_checkout
from harness.cli.against.paired_run import BASE, NEW, run_against
from harness.cli.cluster import node
from harness.cli.goodput.probing import FailedProbeError, Prober
from harness.cli.pins import Pins, whole_records
from harness.core.closure import ROOT, SourceModule, Sources
from harness.core.nouns import Model, Trial, Workload
from harness.experiment.config import Experiment
from harness.measure.machine.environment import environment
from harness.measure.sweep import SweepEvent
from harness.measure.versions.version import CodeVersion
from results.store.folder import Store
from tests.support.harness.resolved import resolved
from tests.support.harness.sessions import make_trial, open_session
from tests.support.harness.source_tree import copy_sources
from tests.unit.harness.cli.test_run import swept

TRIAL: Trial = replace(make_trial(), options={}, model=Model("demo"), workload=Workload("gsm8k"))
LOOP = "harness/measure/load_loop.py"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("tree"))


def test_what_was_edited_since_the_key_was_made_is_named(root: Path) -> None:
    pins = Pins(Sources(root))
    key = pins.of(TRIAL)
    path = root / LOOP
    before = path.read_bytes()
    assert pins.edited(TRIAL) == ""
    path.write_bytes(before + b"\nEDITED = 1\n")
    assert pins.edited(TRIAL) == f"{LOOP} changed"
    path.write_bytes(before + b"\nif half of an edit\n")
    assert f"{LOOP}: line " in pins.edited(TRIAL)
    path.write_bytes(before + b"\n# a comment\n")
    assert pins.edited(TRIAL) == ""
    (root / "backends/training/heads/train.py").write_text("nothing of this trial")
    path.write_bytes(before)
    assert (pins.edited(TRIAL), pins.of(TRIAL)) == ("", key)
    (root / "backends/scripted.py").rename(root / "backends/moved.py")
    assert "backends.scripted" in pins.edited(TRIAL)
    (root / "backends/moved.py").rename(root / "backends/scripted.py")


def test_nothing_is_read_again_while_nobody_writes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Sources(root)
    pins = Pins(sources)
    pins.of(TRIAL)
    read: list[str] = []
    found = Sources._read

    def noted(self: Sources, name: str, path: str) -> SourceModule:
        read.append(path)
        return found(self, name, path)

    monkeypatch.setattr(Sources, "_read", noted)
    assert pins.edited(TRIAL) == ""
    assert read == []
    again = sources.read_again()
    assert again._modules == sources._modules
    os.utime(root / LOOP, (0, 0))
    assert sources._modules.keys() - sources.read_again()._modules == {
        LOOP.removesuffix(".py").replace("/", ".")
    }


def test_files_of_options_count(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = tmp_path / "heads.json"
    heads.write_text("one")
    monkeypatch.setattr(backend_pins, "paths", lambda *_: [heads])
    pins = Pins(Sources(root))
    pins.of(TRIAL)
    assert pins.edited(TRIAL) == ""
    heads.write_text("others")
    assert pins.edited(TRIAL) == f"{tmp_path.name}/heads.json changed"
    heads.unlink()
    assert pins.edited(TRIAL) == f"{tmp_path.name}/heads.json changed"


def test_another_checkout_is_watched_too(root: Path) -> None:
    other: Checkout = find_checkout(str(root))
    assert other.edited(TRIAL) == ""
    path = root / LOOP
    before = path.read_bytes()
    path.write_bytes(before + b"\nEDITED = 1\n")
    assert other.edited(TRIAL) == f"{path} changed"
    path.write_bytes(before)
    assert other.edited(TRIAL) == ""


def test_a_run_stores_no_edited_trial_as_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edited(pins: Pins, trial: Trial) -> str:
        return "a.py changed" if trial.seed == 1 else ""

    monkeypatch.setattr(Pins, "edited", edited)
    store = Store(tmp_path)
    result = swept(store, [make_trial(seed=seed) for seed in (0, 1)])
    assert result.statuses == {"ok": 1, "failed": 1}
    found = {one.record.trial.seed: one.record for _, one in whole_records(store)}
    assert (found[0].status, found[1].status) == ("ok", "failed")
    assert "a.py changed; run again" in str(found[1].error)


def test_a_node_of_a_cluster_tells_of_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "open_session", open_session)
    monkeypatch.setattr(Pins, "edited", lambda pins, trial: "a.py changed")
    worker = node.NodeWorker("here", None)
    worker.begin([make_trial()], set(), 60.0)
    told: list[node.Tiding] = []
    while not any(isinstance(one, node.ShareOver) for one in told):
        told += worker.tidings(5.0)
    (record,) = (one.record for one in told if isinstance(one, SweepEvent) and one.record)
    assert (record.status, "a.py changed" in str(record.error)) == ("failed", True)


def asked() -> tuple[Experiment, list[Trial]]:
    """A trial of the bundled model, of which no engine is started here."""
    found = resolved("demo", requests=2, repeats=1, slo={"ttft_ms": 100})
    return found, found.trials()


def test_each_version_of_a_paired_run_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pins, "edited", lambda *_: "ours.py changed")
    monkeypatch.setattr(Checkout, "edited", lambda *_: "theirs.py changed")
    other = Checkout(CodeVersion(ROOT, "python", ()), None, environment(), "content", {})
    experiment, trials = asked()
    result = run_against(experiment, other, trials, tmp_path / "run")
    assert result is not None
    assert result.statuses == {"failed": 2}
    for name, file in ((BASE, "theirs.py"), (NEW, "ours.py")):
        [(_, stored)] = whole_records(Store(tmp_path / "run" / name))
        assert f"{file} changed; run again" in str(stored.record.error)


def test_a_probe_of_edited_code_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pins, "edited", lambda *_: "ours.py changed")
    experiment, [trial] = asked()
    with (
        Prober(Store(tmp_path), experiment, lambda _: None) as prober,
        pytest.raises(FailedProbeError, match=r"ours\.py changed; run again"),
    ):
        prober.run(trial)
