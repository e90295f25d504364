"""CUDA numbers the GPUs of a command, and of what it starts, as the driver does."""

from __future__ import annotations

import os

import pytest

from harness.cli import main


@pytest.mark.parametrize(
    ("set_before", "then"), [(None, "PCI_BUS_ID"), ("FASTEST_FIRST", "FASTEST_FIRST")]
)
def test_the_order_is_chosen_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, set_before: str | None, then: str
) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", set_before or "")
    if set_before is None:
        monkeypatch.delenv("CUDA_DEVICE_ORDER")
    seen: list[str | None] = []
    monkeypatch.setattr(main, "app", lambda **_: seen.append(os.environ.get("CUDA_DEVICE_ORDER")))
    monkeypatch.setattr("sys.argv", ["decodebench"])
    with pytest.raises(SystemExit):
        main.main()
    assert seen == [then]
