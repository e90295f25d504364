"""What `vllm-early-exit` decides, recorded for the harness, and replayed from a trace."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from backends.checkpoints import traces
from backends.early_exit.calibration.files import AUTO, NONE
from backends.early_exit.policy import CONFIDENT
from harness.core.decisions import Decisions
from harness.core.errors import UserError
from results.traces.played import PlayedRow

if TYPE_CHECKING:
    from backends.early_exit.plugin.telemetry import DecodedStep

NAME = "vllm-early-exit"
UNKNOWN = -1


def check_replay(options: Mapping[str, Any], name: str = NAME, method: str | None = None) -> None:
    """Raise `UserError`, for the backend `name`, for what has no meaning in a replay, and for a
    trace that cannot be one; `method` as in `traces.find_trace`."""
    if options["replay"] is None:
        return
    if options["record"]:
        raise UserError(f"backend '{name}': option 'record' has no meaning with 'replay'")
    if options["calibration"] not in (AUTO, NONE):
        raise UserError(f"backend '{name}': option 'calibration' has no meaning with 'replay'")
    opened = traces.open_method if options["measure"] in CONFIDENT else traces.open_source
    opened(options["replay"], name, method)


class _Asked(NamedTuple):
    """One step of a request: how sure each checked exit was, and the rows of the step."""

    confidence: list[float]
    rows: int


class DecisionLog:
    """The confidences of each request's steps at the exits after `layers`. No exit's token is ever
    held against the last layer's."""

    def __init__(self, layers: Sequence[int]) -> None:
        self._layers = layers
        self._steps: defaultdict[str, list[_Asked]] = defaultdict(list)

    def note(self, step: DecodedStep, live: Container[str]) -> None:
        """The step decoded a token of each of its requests that is still wanted."""
        places = [self._layers.index(layer) for layer in step.checked]
        for row, name in enumerate(step.names):
            if name not in live:
                continue
            confidence = [math.nan] * len(self._layers)
            for place, found in zip(places, step.confidence, strict=True):
                confidence[place] = found[row]
            self._steps[name].append(_Asked(confidence, len(step.names)))

    def take(self, name: str, tokens: int) -> Decisions:
        """What was decided at a request's first `tokens` tokens after the prompt's; the request is
        forgotten. A step that asked nothing (it read prompts too) is no attempt."""
        found = Decisions()
        for position, (confidence, rows) in enumerate(self._steps.pop(name, [])[:tokens]):
            if not all(map(math.isnan, confidence)):
                found.positions.append(position)
                found.confidence += confidence
                found.agrees += [UNKNOWN] * len(confidence)
            found.drafted.append(0)
            found.accepted.append(0)
            found.batch.append(rows)
        return found

    def clear(self) -> None:
        """Forget all requests."""
        self._steps.clear()


class ReplayedSteps:
    """The confidences of rows of a trace, in the place of a model's.

    Args:
        layers: those with exits.
        columns: the exits of the trace that they replay.
    """

    def __init__(self, layers: Sequence[int], columns: Sequence[int]) -> None:
        self.columns = columns
        self._places = {layer: place for place, layer in enumerate(layers)}
        self._rows: dict[str, tuple[PlayedRow, int]] = {}

    def enter(self, name: str, row: PlayedRow, max_new_tokens: int) -> None:
        """The request of this engine's id replays a row."""
        self._rows[name] = row, max_new_tokens

    def leave(self, name: str) -> None:
        """The request is over."""
        self._rows.pop(name, None)

    def clear(self) -> None:
        """All are."""
        self._rows.clear()

    def limit(self, name: str) -> int:
        """The most tokens that were asked of a request."""
        return self._rows[name][1]

    def __call__(self, layer: int, names: Sequence[str], tokens: Sequence[int]) -> list[float]:
        """How sure each request is after a layer, at these places of the answers."""
        place = self._places[layer]
        return [
            self._rows[name][0].confidence(token, 0, place)
            for name, token in zip(names, tokens, strict=True)
        ]
