"""What decisions brought, and what they have to bring for a method to be as fast as plain decoding.

What was skipped, or how many drafts stood, is the decisions' part, and may be another model's; what
it took to decide is the machine's. A step that leaves early takes the plain step's time, less that
of the skipped layers, plus checks, fills and what cannot be hidden behind the device. What that
comes to is taken from both steps' times, and held against the time of all layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.cells import Cell, Overview
from reports.numbers import percent, significant
from reports.words.drafts import Drafting
from reports.words.findings import span
from reports.words.scale import read_bytes
from results.compare.pairing import NATIVE

MOSTLY = 0.5
"""Share of a step that reading takes at least, for what is not told of the rest to be left out."""
WIDEST = 2.0
"""An interval's upper end over its lower one, for its middle to say what a step needs."""
BASELINES = dict.fromkeys(("vllm-early-exit", "vllm-speculative"), "vllm")
"""The plain decoding of a backend's own engine, where it is not `NATIVE`."""


def plain_beside(seen: Overview, cell: Cell) -> Cell | None:
    """The cell of plain decoding on the same engine under the same load; None where it was not run,
    where no speed-up over it was computed, and for plain decoding itself and the reference."""
    beside = [other for other in seen.cells if other.place == cell.place]
    name = BASELINES.get(cell.variant.backend, NATIVE)
    if cell.variant.is_reference or name == cell.variant.backend:
        return None
    if name != NATIVE:
        reference = next((other for other in beside if other.variant.is_reference), None)
        if reference is None or reference.variant.backend != name:
            return None
    return next((other for other in beside if other.variant.backend == name), None)


def pays_from(seen: Overview, cell: Cell) -> float | None:
    """The share of layer passes from which a step is shorter than plain decoding's on the same
    engine; above 1: not at this load, whatever is skipped. None where steps or bytes are not told,
    or not sound, or the speed-up's interval is too wide for its middle to say. An overhead that is
    not told (vLLM's on a GPU) is taken as none where most of the step is the floor's, and else as
    unknown: then nothing is said."""
    plain, known = plain_beside(seen, cell), cell.measured.pass_bytes
    if plain is None or not known or not (cell.stands_alone and plain.stands_alone):
        return None
    if not _is_narrow(cell, "speedup" if plain.variant.is_reference else "speedup_native"):
        return None
    skipped, own, whole = cell.value("early_exit_rate"), cell.value("step_s"), plain.value("step_s")
    overhead = plain.value("overhead_share")
    if overhead is None and (plain.value("floor_share") or 0.0) > MOSTLY:
        overhead = 0.0
    if not skipped or not own or not whole or overhead is None:
        return None
    passes = whole * (1 - overhead)
    layers = passes * known["layers"] * known["layer"] / read_bytes(cell.measured)
    return max(0.0, skipped - (whole - own) / layers)


def decisions(
    seen: Overview, cells: Sequence[Cell], drafts: Mapping[Cell, Drafting]
) -> tuple[str, str]:
    """What decisions brought each step, and what they have to bring for it not to be too dear;
    empty where that is not counted or not sound.

    Args:
        seen: the cells and what they are compared with.
        cells: of one variant, model and load.
        drafts: `drafting(seen)` by cell.
    """
    made = [drafts[cell] for cell in cells if cell in drafts]
    if made and not any(one.drafted for one in made):
        return "nothing was drafted", ""
    tokens = [(n, one) for one in made if (n := one.cell.value("tokens_per_step")) is not None]
    if tokens:
        needed = [n / one.measured for n, one in tokens if one.measured and _is_known(one)]
        words = (span(numbers, significant) for numbers in ([n for n, _ in tokens], needed))
        brought, least = (text and f"{text} tokens a step" for text in words)
        return brought, least
    skipped = [s for cell in cells if (s := cell.value("early_exit_rate")) is not None]
    shares = [share for cell in cells if (share := pays_from(seen, cell)) is not None]
    words = (span(numbers, percent) for numbers in (skipped, shares))
    brought, least = (text and f"{text}% of layers skipped" for text in words)
    return brought, "not at this load" if shares and min(shares) > 1 else least


def _is_known(one: Drafting) -> bool:
    """Whether the speed-up holds and its ends are near enough for anything to follow from it."""
    return one.holds and _is_narrow(one.cell, one.metric)


def _is_narrow(cell: Cell, metric: str) -> bool:
    low, high = cell.low(metric), cell.high(metric)
    return not low or not high or high / low <= WIDEST
