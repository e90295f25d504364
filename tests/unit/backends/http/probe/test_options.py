"""Addresses and keys that no request could be made with."""

from __future__ import annotations

import pytest

from backends import check_options
from backends.http.probe.options import check_base_url
from harness.core.errors import UserError
from tests.support.fake_openai import FakeReply, FakeServer
from tests.support.http_client import Start


@pytest.mark.parametrize("host", ["gpu01..lan", ".lan", "lan..", f"{'x' * 64}.lan"])
def test_a_name_that_cannot_be_looked_up_is_refused(host: str) -> None:
    with pytest.raises(UserError, match=r"base_url .*: expected http"):
        check_options("http", {"base_url": f"http://{host}:8000/v1"})


@pytest.mark.parametrize("host", ["gpu01.lan", "gpu01.lan.", "gpu_01", "10.0.0.1", "[fe80::1]"])
def test_a_name_that_can_be_looked_up_is_none_to_refuse(host: str) -> None:
    assert check_base_url(f"http://{host}:8000/") == f"http://{host}:8000/v1"


@pytest.mark.parametrize("ending", ["\r", "\n", "\x7f"])
def test_a_key_with_a_line_end_is_told_from_a_server_that_answers_wrongly(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """As from a file with line ends of Windows; no request can be made with it."""
    monkeypatch.setenv("TEST_KEY", f"sk-secret{ending}")
    with pytest.raises(UserError, match=r"api_key_env: \$TEST_KEY holds a line end") as caught:
        check_options("http", {"api_key_env": "TEST_KEY"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("listed", ["m", {"data": ["m"]}, {"models": []}])
def test_a_list_of_models_that_is_none_is_told(
    start: Start, monkeypatch: pytest.MonkeyPatch, listed: object
) -> None:
    def get(server: FakeServer, reply: FakeReply, path: str) -> None:
        reply.fail(200, listed)

    monkeypatch.setattr(FakeServer, "answer_get", get)
    with pytest.raises(UserError, match="/v1/models: not an OpenAI-compatible answer"):
        start()
