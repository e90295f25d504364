"""What is refused before anything runs in Ray."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from backends.tetris.live import devices
from harness.core.errors import UserError


def test_without_ray_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^--live: Ray is not installed"):
        devices.start_ray()


def test_an_address_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(devices, "ANSWERS_S", 1.0)
    with pytest.raises(
        UserError, match=r"^--address 127\.0\.0\.1:9: no Ray cluster answers within"
    ):
        devices.start_ray("127.0.0.1:9")


@pytest.mark.parametrize(
    ("asks", "answers_s", "refused"),
    [
        ("time.sleep(3.5); print('asking', flush=True); os._exit(0)", 3.0, False),
        ("print('asking', flush=True); time.sleep(60)", 0.1, True),
        ("os._exit(1)", 0.1, True),
    ],
    ids=["imports for long", "nobody answers", "cannot ask"],
)
def test_only_the_answer_of_a_cluster_is_waited_for(
    asks: str, answers_s: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To import Ray takes as long as it takes."""
    monkeypatch.setattr(devices, "_HEALTH", f"import os, time; {asks}")
    monkeypatch.setattr(devices, "ANSWERS_S", answers_s)
    told = r"^--address 127\.0\.0\.1:9: no Ray cluster answers within"
    with pytest.raises(UserError, match=told) if refused else nullcontext():
        devices._health("127.0.0.1:9", "--address 127.0.0.1:9")
