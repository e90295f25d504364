"""Connections that are encrypted, and those that lead through a proxy of the environment."""

from __future__ import annotations

import contextlib
import gc
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backends.http import client as http_client
from backends.http.backend import HttpBackend
from backends.http.connection import Connection
from backends.http.route import find_proxy, find_route
from backends.http.stream import StreamedAnswer
from harness.core.errors import UnavailableError, UserError
from harness.core.nouns import Commit, Load
from harness.measure.load_loop import run_load
from tests.support.fake_openai import FakeReply, FakeServer, good
from tests.support.http_client import PATIENCE_S, request, until


def options(**more: object) -> dict[str, object]:
    return {name: option.default for name, option in HttpBackend.OPTIONS.items()} | more


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:far.test"),
        ],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture
def secure(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """The fake server behind TLS, as https://localhost."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server = FakeServer(good, good)
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
    server.url = server.url.replace("http://127.0.0.1", "https://localhost")
    yield server
    server.close()


def test_tls_is_spoken_and_checked(secure: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = HttpBackend(options(base_url=secure.url), None)
    requests = [request(str(n)) for n in range(12)]
    found = run_load(backend, requests, Load("closed", concurrency=4), time_limit_s=PATIENCE_S)
    assert [g.token_ids for g in found] == [[11, 12, 13]] * 12
    monkeypatch.delenv("SSL_CERT_FILE")
    stranger = http_client.Client(backend._route, 5.0)
    stranger.send("a", backend._payload(request()), backend._answer(request()))
    commits: list[Commit] = []
    give_up = time.monotonic() + PATIENCE_S
    while not commits:
        assert time.monotonic() < give_up
        stranger.wait(0.1)
        commits = stranger.poll()
    assert "CERTIFICATE_VERIFY_FAILED" in (commits[0].error or "")
    stranger.close()
    backend.close()


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_no_connection_stays_behind_a_probe_whose_refusals_come_in_pieces(
    secure: FakeServer, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    send = FakeReply.send

    def late(reply: FakeReply, data: bytes) -> None:
        time.sleep(0.02)
        send(reply, data)

    def play(reply: FakeReply) -> None:
        reply.start(encoding=encoding)
        good(reply)

    gc.collect()
    monkeypatch.setattr(FakeReply, "send", late)
    secure._probe = play
    refused = pytest.raises(UserError, match="the answer is encoded")
    with refused if encoding == "gzip" else contextlib.nullcontext():
        HttpBackend(options(base_url=secure.url, model="m"), None).close()
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        gc.collect()
    assert not [str(warning.message) for warning in left]


def test_a_certificate_that_is_not_believed_is_no_matter_of_time(
    secure: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(UserError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        HttpBackend(options(base_url=secure.url), None)
    assert not isinstance(caught.value, UnavailableError)


@pytest.mark.parametrize("ending", ["an answer", "a goodbye", "nothing more"])
def test_a_tls_connection_is_quiet_until_the_server_speaks_or_closes(
    certificate: Path, ending: str
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    route = SimpleNamespace(connect=lambda: ours, tunnel=b"", host="localhost")
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    connection = Connection(cast(Any, route), trusting)

    def opens() -> bool:
        connection.advance()
        return connection.is_open

    with futures.ThreadPoolExecutor() as pool:
        shaken = pool.submit(context.wrap_socket, theirs, server_side=True)
        until(opens)
        server = shaken.result(PATIENCE_S)
    waiting = socket.socket.recv(connection._socket, 1, socket.MSG_PEEK)
    assert waiting, "a ticket for a later session"
    assert connection.is_quiet()
    assert connection.is_quiet()
    server.setblocking(False)
    if ending == "an answer":
        server.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    elif ending == "a goodbye":
        with contextlib.suppress(ssl.SSLWantReadError):
            server.unwrap()
    else:
        server.close()
    assert not connection.is_quiet()
    server.close()
    connection.close()


class Proxy:
    """Forwards to `target` whatever it is asked for, and keeps the first line of each request."""

    def __init__(self, target: tuple[str, int], refuse: bool = False) -> None:
        self.lines: list[bytes] = []
        self._target, self._refuse = target, refuse
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://us%65r:p%40ss@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        # The target is called once there is something for it: a route is tried by a connection that
        # says nothing, and that one may be accepted after a short test has closed its target.
        with near, contextlib.suppress(ConnectionError), contextlib.ExitStack() as stack:
            head = near.recv(65536)
            if not head:
                return
            far = stack.enter_context(socket.create_connection(self._target))
            self.lines.append(head.partition(b"\r\n")[0])
            self.credentials = b"Proxy-Authorization: Basic dXNlcjpwQHNz" in head
            if head.startswith(b"CONNECT"):
                near.sendall(
                    b"HTTP/1.1 403 No\r\n\r\n" if self._refuse else b"HTTP/1.1 200 OK\r\n\r\n"
                )
            else:
                far.sendall(head)
            while not self._refuse:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    (far if ready is near else near).sendall(data)

    def close(self) -> None:
        self._listener.close()


def no_proxies_but(monkeypatch: pytest.MonkeyPatch, named: dict[str, str]) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, url in named.items():
        monkeypatch.setenv(name, url)


def asked_through(
    proxy: Proxy, base_url: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> list[str | None]:
    """What a client whose environment names `proxy` in `variable` is answered."""
    no_proxies_but(monkeypatch, {variable: proxy.url})
    route = find_route(base_url, None, 5.0)
    client = http_client.Client(route, 5.0)
    payload = route.request("completions", {"prompt": [1], "max_tokens": 3})
    client.send("a", payload, StreamedAnswer("ids", 3))
    found: list[Commit] = []
    give_up = time.monotonic() + PATIENCE_S
    while not any(commit.finished for commit in found):
        assert time.monotonic() < give_up
        client.wait(0.1)
        found += client.poll()
    client.close()
    return [commit.error or commit.finished for commit in found]


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    server = FakeServer()
    proxy = Proxy(("127.0.0.1", server._http.server_port))
    found = asked_through(proxy, "http://far.test/v1", monkeypatch, variable)
    assert found == [None, None, "length"]
    assert proxy.lines == [b"POST http://far.test/v1/completions HTTP/1.1"]
    assert proxy.credentials
    proxy.close()
    server.close()


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_the_probe_takes_the_way_that_requests_take(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    server = FakeServer()
    proxy = Proxy(("127.0.0.1", server._http.server_port))
    no_proxies_but(monkeypatch, {variable: proxy.url})
    backend = HttpBackend(options(base_url="http://far.test/v1", model="m"), None)
    assert proxy.lines[0] == b"GET http://far.test/v1/models HTTP/1.1"
    assert proxy.credentials
    backend.close()
    proxy.close()
    server.close()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"all_proxy": "socks5://me:secret@x:1"}, r"\$all_proxy: expected http.* got socks5://"),
        ({"http_proxy": "https://x:1"}, r"\$http_proxy: expected http.* got https://"),
        ({"http_proxy": "http://:1"}, r"\$http_proxy: expected http"),
        ({"http_proxy": "http://x..y:1"}, r"\$http_proxy: expected http"),
        ({"http_proxy": "http://x:99999"}, r"\$no_proxy with far\.test in it does without"),
    ],
)
def test_a_proxy_that_is_not_spoken_to_in_http_is_refused(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str], words: str
) -> None:
    no_proxies_but(monkeypatch, named)
    with pytest.raises(UserError, match=words) as caught:
        HttpBackend(options(base_url="http://far.test/v1"), None)
    assert "secret" not in str(caught.value)
    assert not isinstance(caught.value, UnavailableError)
    monkeypatch.setenv("no_proxy", "far.test")
    assert find_proxy("http://far.test/v1") is None
    no_proxies_but(monkeypatch, {"all_proxy": "socks5://x:1", "http_proxy": "x:81"})
    assert find_proxy("http://far.test/v1") == "http://x:81"


@pytest.mark.parametrize("refuse", [False, True])
def test_tls_through_a_proxy(
    secure: FakeServer, monkeypatch: pytest.MonkeyPatch, refuse: bool
) -> None:
    proxy = Proxy(("127.0.0.1", secure._http.server_port), refuse)
    found = asked_through(proxy, "https://far.test/v1", monkeypatch, "https_proxy")
    refused = ["the proxy refused: HTTP/1.1 403 No (after 0 tokens)"]
    assert found == (refused if refuse else [None, None, "length"])
    assert proxy.lines == [b"CONNECT far.test:443 HTTP/1.1"]
    proxy.close()
