"""A small OpenAI-compatible server whose every byte the test decides. Loopback only."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from backends.http.backend import LONGER_PROBE, PROBE_TOKENS


class FakeReply:
    """One answer under way: a status line, then chunks, then an end or a dropped connection."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.body = body
        self.headers = handler.headers
        self.port: int = handler.client_address[1]
        """Of the client's end."""
        self._handler = handler
        self._started = False

    def start(
        self, status: int = 200, content_type: str = "text/event-stream", encoding: str = "identity"
    ) -> None:
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", content_type)
        self._handler.send_header("Content-Encoding", encoding)
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()
        self._started = True

    def send(self, data: bytes) -> None:
        """One HTTP chunk, in one write."""
        if not self._started:
            self.start()
        self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, data: Any) -> None:
        self.send(f"data: {json.dumps(data)}\n\n".encode())

    def tokens(self, ids: list[int], finish: str | None = None, **more: Any) -> None:
        """A completion chunk as vLLM sends it when asked for token ids."""
        text = "✓" * len(ids)  # by any tokenizer it may be what these ids are
        choice = {"index": 0, "text": text, "token_ids": ids, "finish_reason": finish}
        self.event({"choices": [choice], **more})

    def done(self) -> None:
        self.send(b"data: [DONE]\n\n")

    def end(self) -> None:
        """The proper end of the body; the connection stays open."""
        self._handler.wfile.write(b"0\r\n\r\n")

    def drop(self) -> None:
        """Close the connection in the middle of the body."""
        self._handler.connection.shutdown(socket.SHUT_RDWR)
        self._handler.close_connection = True

    def fail(self, status: int, body: Any) -> None:
        self.start(status, "application/json")
        self.send(json.dumps(body).encode())
        self.end()


PROBES = (PROBE_TOKENS, LONGER_PROBE)
Play = Callable[[FakeReply], None]


def good(reply: FakeReply) -> None:
    """Three tokens in two chunks, the last with its finish reason, then usage and [DONE]."""
    reply.tokens([11, 12])
    reply.tokens([13], "length")
    reply.event({"choices": [], "usage": {"completion_tokens": 3}})
    reply.done()
    reply.end()


class FakeServer:
    """Serves `play` for completions; `probe`, when given, for the backend's first requests."""

    tokenized: Any = None
    """What POST /tokenize answers; None: there is none."""
    metrics = b""
    """What GET /metrics answers; empty: there are none."""

    def __init__(self, play: Play = good, probe: Play | None = None) -> None:
        self.play = play
        self.models = ["m"]
        self.resets: list[bool] = []
        """What POST /reset_prefix_cache answers, one after the other; empty: there is none."""
        self.asked_to_reset: list[str] = []
        """The queries of those calls."""
        self.bodies: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        """Of the last request for an answer."""
        self.ports: list[int] = []
        """Of the client's end of each connection."""
        self.paths: list[str] = []
        self._probe = probe
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                server.ports.append(self.client_address[1])

            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                server.answer_get(FakeReply(self, {}), self.path)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    server.answer_post(FakeReply(self, json.loads(raw or b"{}")), self.path)
                except ConnectionError:
                    self.close_connection = True

        class Listener(ThreadingHTTPServer):
            request_queue_size = 256

        self._http = Listener(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def connections(self) -> int:
        """How many there have been."""
        return len(self.ports)

    def answer_get(self, reply: FakeReply, path: str) -> None:
        if path == "/v1/models":
            reply.fail(200, {"data": [{"id": name} for name in self.models]})
        elif path == "/metrics" and self.metrics:
            reply.start(content_type="text/plain")
            reply.send(self.metrics)
            reply.end()
        else:
            reply.fail(404, {})

    def answer_post(self, reply: FakeReply, path: str) -> None:
        path, _, query = path.partition("?")
        self.paths.append(path)
        if path == "/reset_prefix_cache":
            self.asked_to_reset.append(query)
            if self.resets:
                reply.fail(200, {"success": self.resets.pop(0)})
            else:
                reply.fail(404, {})
            return
        if path == "/tokenize":
            reply.fail(200 if self.tokenized else 404, self.tokenized)
            return
        self.bodies.append(reply.body)
        self.headers = dict(reply.headers)
        is_probe = self._probe is not None and reply.body.get("max_tokens") in PROBES
        (self._probe if is_probe and self._probe else self.play)(reply)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
