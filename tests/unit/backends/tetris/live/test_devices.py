"""What is refused before anything runs in Ray."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("", "--address '': expected HOST:PORT of a Ray cluster; found no port"),
        ("127.0.0.1", "--address 127.0.0.1: expected HOST:PORT of a Ray cluster; found no port"),
        ("auto", "--address auto: expected HOST:PORT of a Ray cluster; found no port"),
        ("127.0.0.1:", "--address 127.0.0.1:: expected HOST:PORT of a Ray cluster; found no port"),
        ("127.0.0.1:abc", "found port 'abc'"),
        ("127.0.0.1:99999", "found port '99999'"),
        (":99999", "found no host"),
        ("http://127.0.0.1:8265", "found http://"),
        (
            "ray://127.0.0.1:10001",
            "ray:// is for Ray clients; expected the port of the head (6379)",
        ),
    ],
)
def test_nobody_is_asked_at_what_is_no_address(
    address: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_health", lambda *_: pytest.fail("asked"))
    with pytest.raises(UserError) as found:
        devices.check_ray(address)
    assert told in str(found.value)
    with pytest.raises(UserError, match=r"^option 'ray': "):
        devices.check_ray(address, "option 'ray'")


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "head.cluster:6379", "[::1]:6379"])
def test_addresses_are_hosts_with_ports(address: str) -> None:
    devices.check_address(address)


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            "RPC error: InvalidAuthToken: Authentication token is missing or incorrect. Note: x",
            "it needs a token, and no other one; set RAY_AUTH_MODE=token, with its token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN",
        ),
        ("RuntimeError: Ray version mismatch", "RuntimeError: Ray version mismatch"),
    ],
)
def test_why_a_cluster_refuses_is_told(
    says: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_HEALTH", f"print('asking', flush=True); exit('trace\\n{says}')")
    with pytest.raises(UserError) as found:
        devices._health("127.0.0.1:9", "--address 127.0.0.1:9")
    assert str(found.value) == f"--address 127.0.0.1:9: refuses the connection: {told}"


@pytest.mark.parametrize(
    ("told", "own"),
    [
        ({}, True),
        ({"RAY_AUTH_MODE": "token"}, True),
        ({"RAY_AUTH_MODE": "disabled"}, False),
        ({"RAY_AUTH_TOKEN_PATH": "x"}, False),
    ],
)
def test_a_ray_of_its_own_has_a_token_unless_one_is_given_or_none_is_wanted(
    told: dict[str, str], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Ray writes one to the home folder, for which any later cluster asks."""
    for name in [name for name in os.environ if name.startswith("RAY_AUTH_")]:
        monkeypatch.delenv(name)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    devices._set_own()
    assert ("RAY_AUTH_TOKEN" in os.environ) == own
