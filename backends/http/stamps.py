"""The kernel's receive stamps (SO_TIMESTAMPNS): when the network handed the bytes over.

Linux gives them for TCP since 4.18, of the last bytes of each read, by the wall clock.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time

OPTION = 35
"""`SO_TIMESTAMPNS`, which Python has no name for."""
TIMESPEC = struct.Struct("qq")
ANCILLARY = socket.CMSG_SPACE(TIMESPEC.size)
WARM_UP_S = 0.5
READINGS, READING_NS = 4, 20_000
STEP_NS = 1_000_000
"""More than a clock that is slewed (500 ppm) gains between two looks."""


def enable(connection: socket.socket) -> None:
    """Ask for stamps; where the kernel knows none, none will come."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, OPTION, 1)


def read(connection: socket.socket, size: int, wall_ahead_ns: int) -> tuple[bytes, int | None]:
    """(bytes, the monotonic time at which the last of them came, ns, None where nobody stamped
    it). `wall_ahead_ns` is the wall clock minus the monotonic one."""
    data, control, _, _ = connection.recvmsg(size, ANCILLARY)
    if not control or len(control[0][2]) != TIMESPEC.size:
        return data, None
    seconds, ns = TIMESPEC.unpack(control[0][2])
    return data, seconds * 1_000_000_000 + ns - wall_ahead_ns


class WallClock:
    """How far the wall clock, by which the kernel stamps, is ahead of the monotonic one."""

    def __init__(self) -> None:
        self.wall_ahead_ns = 0
        self.has_stepped = True
        """Whether it may have been set since the last reading: stamps from before are worthless."""
        self.read()

    def read(self) -> None:
        """Compare the clocks again; a reading that was interrupted is repeated."""
        before = self.wall_ahead_ns
        for _ in range(READINGS):
            begin = time.monotonic_ns()
            wall = time.time_ns()
            end = time.monotonic_ns()
            self.wall_ahead_ns = wall - (begin + end) // 2
            if end - begin < READING_NS:
                break
        self.has_stepped = abs(self.wall_ahead_ns - before) > STEP_NS


class StampSource:
    """Keeps the kernel stamping, which it begins some time after the first socket asks for it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._near = socket.create_connection(listener.getsockname())
            self._far, _ = listener.accept()
        enable(self._near)
        self.works = False
        """Whether this kernel stamps at all."""
        give_up = time.monotonic() + WARM_UP_S
        while not self.works and time.monotonic() < give_up:
            self._far.send(b"x")
            self.works = read(self._near, 1, 0)[1] is not None

    def close(self) -> None:
        """Nobody needs stamps any more."""
        self._near.close()
        self._far.close()
