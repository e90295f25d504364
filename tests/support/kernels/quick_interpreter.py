"""Triton's interpreter spends most of a small test on types that it makes anew for every number it
touches, and on checks whose outcome it drops. Here they are made once and left out: for a process
that interprets, for as long as it lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from triton import language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def _look_through_the_language_once() -> None:
    """The interpreter looks through Triton's language at each launch of a kernel and each call of a
    helper function, to put itself in the place of what it finds, and takes it back after a launch.
    In this process nothing else uses the language, so it stays as the first launch leaves it."""
    patch, patched = interpreter._patch_lang, set[int]()

    def once(fn: Callable[..., object]) -> object:
        names = id(fn.__globals__)
        if names not in patched:
            patch(fn)
            patched.add(names)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = once


def _overflow_is_not_asked_for() -> None:
    """Each sum of integers is computed again in 64 bits; whether it fits is told in debug mode."""
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)


def _types_of_blocks_once() -> None:
    """Blocks of one shape have the same object for it."""
    plain = tl.block_type.__init__
    made: dict[Any, dict[str, Any]] = {}
    shapes: dict[Any, Any] = {}

    def block(self: Any, element_ty: Any, shape: Sequence[Any]) -> None:
        sizes = tuple(map(int, shape))
        key = element_ty.name, sizes
        if key not in made:
            plain(self, element_ty, shape)
            made[key] = {**vars(self), "shape": shapes.setdefault(sizes, self.shape)}
        vars(self).update(made[key])

    tl.block_type.__init__ = block
    broadcast = TritonSemantic.broadcast_impl_value

    def as_wide(self: Any, left: Any, right: Any) -> Any:
        if left.shape is right.shape:
            return left, right
        return broadcast(self, left, right)

    TritonSemantic.broadcast_impl_value = as_wide


def _shapes_of_tensors_once() -> None:
    plain = tl.tensor.__init__
    made: dict[Any, dict[str, Any]] = {}

    def tensor(self: Any, handle: Any, type: Any) -> None:
        shape = type.shape if type.is_block() else None
        if id(shape) not in made:
            plain(self, handle, type)
            made[id(shape)] = {name: vars(self)[name] for name in ("shape", "numel")}
        vars(self).update(made[id(shape)], handle=handle, type=type, dtype=type.scalar)

    tl.tensor.__init__ = tensor


def _scalar_types_by_identity() -> None:
    plain, made = interpreter._get_np_dtype, dict[str, np.dtype[Any]]()
    equal = tl.dtype.__eq__

    def known(dtype: Any) -> np.dtype[Any]:
        if dtype.name not in made:
            made[dtype.name] = plain(dtype)
        return made[dtype.name]

    def same(self: Any, other: object) -> bool:
        return self is other or equal(self, other)

    interpreter._get_np_dtype = known
    tl.dtype.__eq__ = same


def _bfloat16_by_its_bits() -> None:
    """The upper half of a float32, rounded to nearest even as a GPU does; the interpreter cuts the
    lower half off."""
    plain = interpreter._convert_float

    def convert(given: Any, before: Any, after: Any, rounding: Any) -> Any:
        if (before, after) == (tl.bfloat16, tl.float32):
            return given.astype(np.uint32) << 16
        cuts = rounding == interpreter._ir.ROUNDING_MODE.RTZ
        if (before, after) == (tl.float32, tl.bfloat16) and not cuts:
            bits = np.ascontiguousarray(given).view(np.uint32)
            nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return np.where(np.isnan(given), (bits >> 16) | 0x40, nearest).astype(np.uint16)
        return plain(given, before, after, rounding)

    interpreter._convert_float = convert


def quicken() -> None:
    """Before the first kernel is launched; not taken back."""
    _look_through_the_language_once()
    _overflow_is_not_asked_for()
    _types_of_blocks_once()
    _shapes_of_tensors_once()
    _scalar_types_by_identity()
    _bfloat16_by_its_bits()
