"""A cache costs what its sequences fill, not what they might."""

from __future__ import annotations

import sys

import pytest
import torch

from backends.engine.executors.host_cache import HostCache
from backends.engine.model.memory import KEPT_BYTES
from backends.engine.model.taps import Taps
from backends.kernels.cpu import native, native_checks
from tests.support.engine.random_models import BASE
from tests.support.engine.resident import measured_memory

SLOTS, MAX_LEN, USED = 32, 4096, 100
POSITION_BYTES = BASE.layers * 2 * BASE.kv_size * 2
"""Of the child's model in bfloat16: 201 MB are reserved, 4.9 MB used."""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the resident memory")
def test_slots_cost_what_is_in_use() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(f"no native kernels: {error}")
    in_use = SLOTS * USED * POSITION_BYTES
    found = measured_memory("cache", SLOTS, MAX_LEN, USED)
    # a page holds 64 positions of a head; the rest is what a first call allocates
    assert in_use < found["filled"] < 2 * in_use + (8 << 20)
    assert found["long"] > 0.9 * (MAX_LEN - USED) * POSITION_BYTES
    assert found["left"] < (2 << 20), "a finished long sequence gives its pages back"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the resident memory")
def test_kept_states_cost_what_is_in_use() -> None:
    """Those of three layers, which EAGLE-3 reads: 101 MB are reserved, 2.5 MB used."""
    if not native_checks.available():
        pytest.skip("no native kernels")
    states = 3 * BASE.width * 4
    in_use = SLOTS * USED * (POSITION_BYTES + states)
    found = measured_memory("states", SLOTS, MAX_LEN, USED)
    assert in_use < found["filled"] < 2 * in_use + (8 << 20)
    assert found["long"] > 0.9 * (MAX_LEN - USED) * (POSITION_BYTES + states)
    assert found["left"] < (2 << 20), "a finished long sequence gives its pages back"


def test_only_states_beyond_the_kept_of_a_slot_are_given_back() -> None:
    taps = Taps.allocate((1, 2), 3, 4096, 256, torch.float32)
    kept = KEPT_BYTES // (2 * 256 * 4)
    assert 0 < kept < 4096
    taps.states.fill_(1.0)
    taps.release(1, kept)
    assert taps.states.count_nonzero() == taps.states.numel()
    taps.release(1, kept + 1)
    assert bool((taps.states[[0, 2]] == 1).all())
    assert bool((taps.states[1, :kept] == 1).all())
    assert not taps.states[1, kept:].any()


def test_only_what_lies_beyond_the_kept_positions_of_a_slot_is_given_back() -> None:
    dtype, slots, length = torch.bfloat16, 3, 4096
    cache = HostCache(BASE, slots, length, dtype)
    kept = KEPT_BYTES // POSITION_BYTES
    assert 0 < kept < length
    memory = torch.from_numpy(cache._memory.bytes).view(dtype)
    numbers = memory.view(2 * BASE.layers, slots, BASE.kv_heads, length, BASE.head_dim)
    numbers.fill_(1.0)
    cache.release(1, kept)
    assert numbers.count_nonzero() == numbers.numel()
    cache.release(1, kept + 1)
    assert numbers[:, [0, 2]].count_nonzero() == numbers[:, [0, 2]].numel()
    assert bool((numbers[:, 1, :, :kept] == 1).all())
    assert not numbers[:, 1, :, kept + 64 :].any()


def test_layers_lie_apart() -> None:
    cache = HostCache(BASE, 2, 16, torch.float32)
    size = 2 * BASE.kv_size * 16 * 4
    places = [place for number in range(BASE.layers) for place in cache.layer(number)]
    assert [place - places[0] for place in places] == [size * i for i in range(len(places))]


def test_what_cannot_be_reserved_is_said() -> None:
    with pytest.raises(MemoryError, match="GiB of virtual memory"):
        HostCache(BASE, 1 << 20, 1 << 30, torch.float32)
