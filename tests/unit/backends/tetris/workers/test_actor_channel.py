"""The socket on which an actor comes: nobody else is let in, and whoever waits hears its end."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

from backends.tetris.workers import actor_channel
from backends.tetris.workers.actor_channel import PID_BYTES, TOKEN_BYTES, ActorChannel
from harness.core.errors import UserError

HOST = "127.0.0.1"
LONG_S = 30.0


@pytest.fixture
def channel() -> Iterator[ActorChannel]:
    made = ActorChannel(HOST, LONG_S, EOFError)
    yield made
    made.close()


def is_readable(channel: ActorChannel) -> bool:
    """As `PipedStages` waits for it."""
    one: Any = channel
    return bool(wait([one], LONG_S))


def knock(channel: ActorChannel, token: bytes | None = None) -> Connection[Any, Any]:
    """As an actor does."""
    peer = socket.create_connection(channel.address)
    told = channel.token if token is None else token
    peer.sendall(told + os.getpid().to_bytes(PID_BYTES, "big"))
    return Connection(peer.detach())


def test_what_was_sent_before_it_came_waits_for_it_in_order(channel: ActorChannel) -> None:
    channel.send("setup")
    channel.send("job")
    assert not channel.poll()
    assert channel.pid == 0
    with knock(channel) as actor:
        assert is_readable(channel)
        assert not channel.has_come(), "that it knocks is no answer"
        assert [actor.recv(), actor.recv()] == ["setup", "job"]
        assert channel.pid == os.getpid()
        actor.send("done")
        assert is_readable(channel)
        assert channel.has_come()
        assert channel.recv() == "done"
        assert not channel.poll()
        channel.send("more")
        assert actor.recv() == "more"


@pytest.mark.parametrize("token", [b"", b"0" * TOKEN_BYTES, b"GET / HTTP/1.1\r\n" * 4])
def test_a_stranger_is_not_let_in(
    channel: ActorChannel, token: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_channel, "HELLO_S", 0.2)
    channel.send("secret")
    with knock(channel, token) as stranger:
        assert is_readable(channel)
        assert not channel.has_come()
        assert channel.pid == 0
        with pytest.raises((EOFError, OSError)):
            stranger.recv()
    with knock(channel) as actor:
        actor.send("opened")
        assert channel.recv() == "opened"
        assert actor.recv() == "secret"


def test_one_that_is_no_more_is_heard_to_end_before_it_came(channel: ActorChannel) -> None:
    threading.Timer(0.2, channel.give_up).start()
    assert is_readable(channel)
    assert channel.has_come()
    assert channel.poll()
    for _ in range(2):
        with pytest.raises(EOFError):
            channel.recv()


def test_whoever_waits_for_an_answer_hears_the_end(channel: ActorChannel) -> None:
    """As when the actor's machine is gone, and with it whoever would have closed its socket."""
    threading.Timer(0.2, channel.give_up).start()
    with pytest.raises(EOFError):
        channel.recv()
    other = ActorChannel(HOST, LONG_S, EOFError)
    with knock(other) as actor:
        actor.send("opened")
        assert other.recv() == "opened"
        threading.Timer(0.2, other.give_up).start()
        with pytest.raises((EOFError, OSError)):
            other.recv()
    other.close()


def test_one_that_is_not_placed_in_its_time_is_told() -> None:
    made = ActorChannel(HOST, 0.1, lambda: UserError("no room"))
    assert is_readable(made)
    assert made.has_come()
    for _ in range(2):
        with pytest.raises(UserError, match=r"^no room$"):
            made.recv()
    made.close()


def test_one_that_has_come_has_all_the_time(channel: ActorChannel) -> None:
    made = ActorChannel(HOST, 2.5, lambda: UserError("no room"))
    with knock(made) as actor:
        assert not made.has_come()
        time.sleep(3.0)
        actor.send("opened")
        assert made.recv() == "opened"
    made.close()


def test_what_it_says_before_it_ends_is_heard(channel: ActorChannel) -> None:
    """A refusal: it is sent, and the actor is no more before anybody looks."""
    channel.send("setup")
    with knock(channel) as actor:
        actor.send("refused")
    channel.give_up()
    assert is_readable(channel)
    assert channel.has_come()
    assert channel.recv() == "refused"
    with pytest.raises((EOFError, OSError)):
        channel.recv()


def test_to_give_up_what_is_closed_does_nothing(channel: ActorChannel) -> None:
    channel.close()
    channel.give_up()
    assert channel.poll(), "whoever asks is told at once"
