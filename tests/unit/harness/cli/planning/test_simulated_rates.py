"""`decodebench simulate --rate`: who is given work where devices differ, and rates of nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.unit.harness.cli.planning.test_simulate import ASKED, PROFILE, call, files

__all__ = ["files"]


def test_devices_that_are_idle_take_work_quickest_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One V100 is enough for this rate, and slow devices miss the objective."""
    slow = {
        **PROFILE,
        "layer_ms": {"V100": [1, 1, 1, 1], "K80": [9, 9, 9, 9]},
        "ramp_ms": {"V100": 0.1, "K80": 0.9},
        "time_share": {kind: {"1": 0.9, "2": 1} for kind in ("V100", "K80")},
    }
    Path("p.json").write_text(json.dumps(slow))
    mixed = {"devices": {"V100": 3, "K80": 4}, "price": {"V100": 2.0, "K80": 0.5}}
    Path("c.yaml").write_text(yaml.safe_dump(mixed))
    assert call(monkeypatch, *ASKED, "--slo-ms", "25", "--rate", "200", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    for one in found["systems"]:
        assert one["within_slo"] > 0.95, one["name"]  # below 0.8 where slow ones go first


@pytest.mark.parametrize("rate", ["1e-305", "1e-9"])
def test_a_rate_of_next_to_nothing_is_refused(
    rate: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *ASKED, "--slo-ms", "50", "--rate", rate) == 2
    assert "--rate: expected 1e-06 a second or more, found 1e-" in capsys.readouterr().err
