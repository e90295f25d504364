"""Sets of sublayers in their three forms."""

from __future__ import annotations

from backends.engine.sublayers.sets import NOTHING, Sublayers


def test_flags_and_masks_say_the_same() -> None:
    left_out = Sublayers(frozenset({0, 3}), frozenset({1, 3}))
    flags = (True, False, False, True, False, False, True, True)
    assert left_out.flags(4) == flags
    assert Sublayers.of(flags) == left_out
    assert left_out.mask(4).tolist() == [1, 2, 0, 3]
    assert len(left_out) == 4
    assert str(left_out) == "attention [0, 3], mlp [1, 3]"
    assert NOTHING.mask(2).tolist() == [0, 0]
    assert Sublayers.of(()) == NOTHING
