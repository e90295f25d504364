"""The command line in this process, as its console script calls it."""

from __future__ import annotations

import pytest

from harness.cli import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of ``decodebench`` with these arguments."""
    monkeypatch.setattr("sys.argv", ["decodebench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)
