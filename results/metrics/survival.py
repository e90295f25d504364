"""Which share of a trial's tokens, or inputs, is alive behind each ramp, window by window."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.metrics import latency
from results.metrics.arrays import Floats, Ints, RequestArrays

WINDOW_S = 120.0
"""TETRIS's; a trial that is short has shorter ones."""
MOST_WINDOWS, FEWEST_WINDOWS = 10, 3
MOST_ASKED = 120
"""Windows of a length that was asked for; forecasts take their time."""
LEAST_COUNTED = 100
"""In a window, on average: with fewer, counting alone puts a share off by 4 points or more."""
_ASKED = re.compile(r"checks_layer_(\d+)")


@dataclass(frozen=True, slots=True)
class SurvivalSeries:
    """W windows of one trial, of equal length but for those that nobody was counted in: they are
    left out.

    ramps: R ascending numbers of layers, each with a ramp behind it.
    counted: (W,) tokens told in the window, those of which it is known how many layers they ran;
        of requests for a label the labels.
    alive: (W, R) the share of them that ran more layers.
    begins_s: (W,) seconds after the first submit.
    """

    ramps: tuple[int, ...]
    window_s: float
    counted: Ints
    alive: Floats
    begins_s: Floats

    def by_chance(self) -> Floats:
        """(W, R) by how much a share is off on average by counting so few, if each left by itself:
        sqrt(2 / pi) standard deviations of a binomial share."""
        deviation = np.sqrt(self.alive * (1 - self.alive) / self.counted[:, None])
        return np.asarray(np.sqrt(2 / np.pi) * deviation)


def survival_series(
    requests: RequestArrays, window_s: float | None = None
) -> SurvivalSeries | None:
    """Survival by windows from the first submit on; what comes after the last whole one is left
    out. Without `window_s` they are `WINDOW_S` long, or shorter: `MOST_WINDOWS` of equal length, or
    as many as leave `LEAST_COUNTED` in each; with it they are the first `MOST_ASKED`. None where no
    ramp was asked, nobody told the layers of a token, or there are fewer than `FEWEST_WINDOWS`."""
    ramps = _ramps(requests)
    found = _ends(requests) if ramps else None
    seconds = latency.window_s(requests)
    if found is None or seconds is None or not len(found[0]):
        return None
    ended_ns, layers = found
    if window_s is None:
        window_s = min(WINDOW_S, seconds / min(MOST_WINDOWS, max(1, len(layers) // LEAST_COUNTED)))
    count = min(MOST_ASKED, int(seconds / window_s * (1 + 1e-9)))
    if count < FEWEST_WINDOWS:
        return None
    places = ((ended_ns - requests.submitted_ns.min()) / latency.NS / window_s).astype(np.int64)
    if math.isclose(seconds / window_s, count):  # the last commit ends the last window
        places = np.minimum(places, count - 1)
    inside = places < count
    places, layers = places[inside], layers[inside]
    counted = np.bincount(places, minlength=count)
    alive = np.stack(
        [np.bincount(places[layers > ramp], minlength=count) for ramp in ramps], axis=1
    )
    some = counted > 0
    if some.sum() < FEWEST_WINDOWS:
        return None
    return SurvivalSeries(
        ramps,
        window_s,
        counted[some],
        alive[some] / counted[some, None],
        np.asarray(np.flatnonzero(some) * window_s, float),
    )


def _ramps(requests: RequestArrays) -> tuple[int, ...]:
    asked = {
        int(match[1])
        for name, values in requests.counts.items()
        if (match := _ASKED.fullmatch(name)) and np.nansum(values) > 0
    }
    return tuple(sorted(asked))


def _ends(requests: RequestArrays) -> tuple[Ints, NDArray[np.int64]] | None:
    """When each token was told, and the layers that it ran; of a label likewise."""
    if requests.labels is not None:
        if (layers := requests.counts.get("layers_run")) is None:
            return None
        known = requests.sampled & ~np.isnan(layers)
        last = requests.commit_ns[requests.commit_start[1:][known] - 1]
        return last, layers[known].astype(np.int64)
    told = requests.token_layers
    if told is None:
        return None
    at = np.repeat(requests.commit_ns, requests.commit_tokens)
    if len(at) != len(told):
        return None
    return at[told > 0], told[told > 0]
