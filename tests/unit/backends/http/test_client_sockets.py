"""The client on sockets whose other ends the test holds: no thread decides what comes when."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from backends.http.client import MOST_AT_ONCE, Client
from backends.http.stream import StreamedAnswer
from harness.core.nouns import Commit
from tests.support.http_client import PATIENCE_S

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": [{"text": "x", "token_ids": [1], "finish_reason": "stop"}]}\n\n'
ANSWER = HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)


class PairedServer:
    """A route to one end of a pair for each connection that the client opens."""

    tls = False
    tunnel = b""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """The client's end."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        ours.setblocking(False)
        self.ends.append(theirs)
        return ours


@pytest.fixture
def pair() -> Iterator[tuple[Client, PairedServer]]:
    server = PairedServer()
    client = Client(cast(Any, server), PATIENCE_S)
    yield client, server
    client.close()
    for end in server.ends:
        end.close()


def send(client: Client, name: str = "a", payload: bytes = b"asked") -> None:
    client.send(name, payload, StreamedAnswer("ids", 4))


def collect(client: Client, count: int = 1) -> list[Commit]:
    """Poll until `count` requests are over."""
    commits: list[Commit] = []
    give_up = time.monotonic() + PATIENCE_S
    while sum(commit.finished is not None for commit in commits) < count:
        assert time.monotonic() < give_up, f"still waiting; so far {commits}"
        commits += client.poll()
    return commits


def asked(end: socket.socket) -> bytes:
    """What the client has sent there by now."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while part := end.recv(1 << 20):
            found += part
    return found


def test_a_connection_on_which_a_request_is_stuck_is_not_used_again(
    pair: tuple[Client, PairedServer],
) -> None:
    """The server refuses before it has read all: the rest would stand before the next request."""
    client, server = pair
    client.open(1)
    send(client, payload=b"x" * 10_000_000)
    server.ends[0].send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
    (refused,) = collect(client)
    assert refused.error == "HTTP 413: Content Too Large (after 0 tokens)"
    client.open(1)
    send(client, "b")
    assert asked(server.ends[1]) == b"asked"


def test_what_one_look_left_unread_is_doubted_from_the_look_before(
    pair: tuple[Client, PairedServer],
) -> None:
    client, server = pair
    count = MOST_AT_ONCE + 1
    client.open(count)
    for number in range(count):
        send(client, str(number))
    for end in server.ends:
        end.send(ANSWER)
    sent_ns = time.monotonic_ns()
    commits = [commit for commit in collect(client, count) if commit.token_ids]
    assert len(commits) == count
    for commit in commits:
        assert commit.arrived_ns is not None
        assert commit.arrived_ns - commit.stamp_lag_ns < sent_ns


def test_a_request_that_is_sent_again_left_when_it_was_first_sent(
    pair: tuple[Client, PairedServer],
) -> None:
    client, server = pair
    client.open(1)
    send(client, "first")
    server.ends[0].send(ANSWER)
    collect(client)
    send(client, "second")
    left_ns = time.monotonic_ns()
    server.ends[0].close()
    give_up = time.monotonic() + PATIENCE_S
    while len(server.ends) < 2 or not asked(server.ends[1]):
        assert time.monotonic() < give_up
        client.poll()
    server.ends[1].send(ANSWER)
    commits = collect(client)
    assert commits[-1].finished == "stop"
    assert commits[0].sent_ns is not None
    assert commits[0].sent_ns < left_ns


def test_text_beyond_what_our_count_leaves_room_for_is_stamped(
    pair: tuple[Client, PairedServer],
) -> None:
    """Counted twice, the tokens asked for are booked after half of the answer."""
    client, server = pair
    client.open(1)
    answer = StreamedAnswer("tokenizer", 4, lambda text: [0, 0])
    client.send("a", b"asked", answer)
    server.ends[0].send(HEAD)
    sent_ns, commits = [], []
    ends = [b'"text": "", "finish_reason": "length"']
    for choice in [b'"text": "x"'] * 4 + ends:
        event = b'data: {"choices": [{%b}]}\n\n' % choice
        sent_ns.append(time.monotonic_ns())
        server.ends[0].send(b"%x\r\n%b\r\n" % (len(event), event))
        while not answer.done and len(answer.texts) < len(sent_ns):
            commits += client.poll()
    server.ends[0].send(b"0\r\n\r\n")
    commits += collect(client)
    assert [len(commit.token_ids) for commit in commits] == [2, 1, 1, 0]
    assert commits[2].arrived_ns is not None
    assert sent_ns[3] < commits[2].arrived_ns < sent_ns[4], "the last text's, not the ending's"
    assert commits[-1].telemetry == {"counted_tokens": 8}


def test_what_was_cancelled_never_comes(pair: tuple[Client, PairedServer]) -> None:
    client, server = pair
    client.open(1)
    send(client, "old")
    client.cancel()
    assert server.ends[0].recv(100) == b"asked"
    assert server.ends[0].recv(100) == b"", "closed"
    send(client, "new")
    client.poll()
    server.ends[1].send(ANSWER)
    assert {commit.request_id for commit in collect(client)} == {"new"}


def test_the_connection_used_last_is_used_next(pair: tuple[Client, PairedServer]) -> None:
    """The others may rest until they are stale; the fewer are in use, the fewer go stale."""
    client, server = pair
    client.open(2)
    for name in ("a", "b"):
        send(client, name)
        (used,) = (end for end in server.ends if asked(end))
        assert used is server.ends[0], "of those that were never used the oldest"
        used.send(ANSWER)
        collect(client)
    for name in ("c", "d"):
        send(client, name)
    assert [asked(end) for end in server.ends] == [b"asked"] * 2
    for end in reversed(server.ends):
        end.send(ANSWER)
        collect(client)
    send(client, "e")
    assert [asked(end) for end in server.ends] == [b"asked", b""]


def test_while_requests_are_under_way_the_next_one_s_connection_is_opened(
    pair: tuple[Client, PairedServer],
) -> None:
    client, server = pair
    client.open(1, 3)
    assert len(server.ends) == 1
    for name, there, used in (("a", 2, 0), ("b", 3, 1), ("c", 3, 2)):
        before = len(server.ends)
        send(client, name)
        assert asked(server.ends[used]), "at once: the connection is there"
        assert len(server.ends) == before, "nobody else of a burst waits until the next one is made"
        client.poll()
        client.poll()
        assert len(server.ends) == there


def test_no_more_connections_are_replaced_than_were_planned(
    pair: tuple[Client, PairedServer],
) -> None:
    client, server = pair
    client.open(1)
    for name in ("a", "b"):
        send(client, name)
    client.poll()
    for end in server.ends:
        end.send(b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    collect(client, 2)
    assert len(server.ends) == 3
