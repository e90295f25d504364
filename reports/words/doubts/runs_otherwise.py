"""Backends of one engine that run it otherwise: a part of their ratio is that, and no method's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reports.cells import Cell
from reports.words.drafts import VLLM, engine

_WAYS: dict[str, tuple[str, Mapping[object, str]]] = {
    "async_scheduling": ("scheduler", {True: "asynchronous", False: "synchronous"}),
    "model_runner": ("model runner", {"V1": "V1", "V2": "V2"}),
}
"""Effective options of vLLM that a method may not leave to it, with words for what they may be."""


def sentences(cells: Iterable[Cell]) -> Iterator[str]:
    """For each way in which plain vLLM ran otherwise than methods inside it, who ran how."""
    inside = [cell for cell in cells if engine(cell) == VLLM]
    plain = [cell for cell in inside if cell.variant.backend == VLLM]
    for option, (what, words) in _WAYS.items():
        own = {cell.effective.get(option) for cell in plain} - {None}
        if len(own) != 1:
            continue
        (usual,) = own
        others: dict[str, str] = {}
        for cell in inside:
            found = cell.effective.get(option)
            if found not in (None, usual):
                others.setdefault(cell.variant.backend, words.get(found, str(found)))
        if others:
            how = " or ".join(sorted(set(others.values())))
            yield (
                f"{' and '.join(others)} ran on vLLM's {how} {what}, {VLLM} on the "
                f"{words.get(usual, usual)} one: a part of their ratio to it comes from that."
            )
