"""How many requests a closed loop needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.cli import main
from tests.support.harness.command import call as called
from tests.unit.harness.cli.planning.test_simulate import files

__all__ = ["files"]
ASKED = ["simulate", "--profile", "p.json", "--cluster", "c.yaml"]


@pytest.mark.parametrize(
    ("devices", "arguments", "told"),
    [
        # four times what three devices hold, two inputs each, and 20 requests of each client
        (3, ["--requests", "479"], "--requests: expected 480 or more, 20 of each client that is "),
        (3, ["--requests", "959", "--copies", "2"], "--requests: expected 960 or more, 20 of each"),
        (3, ["--requests", "179", "--clients", "9"], "--requests: expected 180 or more, 20 of"),
        (70_000, [], "--requests: at most 10,000,000, and these devices and batches need 11,200,0"),
    ],
)
def test_a_closed_loop_of_few_requests_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    devices: int,
    arguments: list[str],
    told: str,
) -> None:
    """Its beginning and its end would be most of what is counted."""
    write = {"devices": {"V100": devices}, "price": {"V100": 2.0}}
    Path("c.yaml").write_text(yaml.safe_dump(write))
    asked = [*ASKED, "--slo-ms", "50", *arguments]
    assert called(monkeypatch, *asked) == main.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
