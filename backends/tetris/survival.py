"""TETRIS's estimator of the batch profile: which share of a batch is alive on entering each layer.

After TETRIS §3.1: survival is measured by windows of two minutes and the next window's is forecast
by an ARIMA model for each ramp. The paper leaves the order and the history open: here the order is
the one of the least AIC, fitted to the logit, so that a forecast is a share.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

WINDOW_S = 120.0
HISTORY = 30
ORDERS = tuple((p, d, q) for p in range(4) for d in range(2) for q in range(2))
"""(autoregressive terms, differences, moving-average terms), TETRIS's are not told."""
LEAST_WINDOWS = 8
CLIP = 1e-3
_MOST_STEPS = 50

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RampLog:
    """What ramps said of inputs: N inputs, R ramps in order of depth.

    after: R ascending numbers of layers, each with a ramp behind it.
    confidence: (N, R) float64, NaN at the ramps beyond the one where an input left.
    leaves: (N, R) bool, whether the ramp lets the input leave; ignored where confidence is NaN.

    Raises:
        ValueError: for shapes that do not fit, and for an input that a ramp was not asked about
            before it had left.
    """

    after: tuple[int, ...]
    confidence: Floats
    leaves: NDArray[np.bool_]

    def __post_init__(self) -> None:
        wide = (len(self.leaves), len(self.after))
        if self.confidence.shape != wide or self.leaves.shape != wide:
            raise ValueError(f"expected {wide} confidences and decisions")
        if list(self.after) != sorted({n for n in self.after if n > 0}):
            raise ValueError(f"expected ascending layers, found {self.after}")
        asked = ~np.isnan(self.confidence)
        left = np.maximum.accumulate(self.leaves & asked, axis=1)
        if not (asked | left).all():
            raise ValueError("a ramp was not asked about an input that had not left before it")

    def alive(self, cuts: Sequence[int], thresholds: Sequence[float] | None = None) -> Floats:
        """Share alive behind each ramp when only those at `cuts` let inputs leave, (R,) float64.

        The decisions of one input hang together, so that shares measured with all ramps on do not
        tell it: who would have left at a ramp that is off may leave at the next one. An input that
        really left, and was not asked any more, is taken to leave at any later cut as well.

        Args:
            cuts: of `after`; a patience counter that runs at every ramp and lets inputs leave at
                cuts only is logged as leaving from the ramp on where its count was reached.
            thresholds: R least confidences in place of the logged decisions.

        Raises:
            ValueError: for a cut that no ramp stands at, and for an empty log.
        """
        if not set(cuts) <= set(self.after):
            raise ValueError(f"cuts {sorted(set(cuts) - set(self.after))} have no ramp")
        if not len(self.leaves):
            raise ValueError("no input was logged")
        asked = ~np.isnan(self.confidence)
        leaves = self.leaves & asked
        gone = np.maximum.accumulate(leaves, axis=1) & ~asked
        if thresholds is not None:
            leaves = asked & (np.nan_to_num(self.confidence) >= np.asarray(thresholds))
        leaves = (leaves | gone) & np.isin(self.after, list(cuts))
        return np.asarray(1.0 - np.maximum.accumulate(leaves, axis=1).mean(axis=0))


def forecast(history: Floats, orders: Sequence[tuple[int, int, int]] = ORDERS) -> Floats:
    """Survival in the window after the last of `history` (W, R): (R,) float64 within 0..1 that
    never rises with depth. Each ramp's is an ARIMA forecast of its logit, of the order with the
    least AIC (TETRIS §3.1), and the last value where none can be fitted."""
    values = [_next(series, orders) for series in np.asarray(history, float).T]
    return np.minimum.accumulate(np.clip(np.asarray(values, float), 0.0, 1.0))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """SciPy's OpenBLAS on one thread: a fit solves thousands of systems of four unknowns, which the
    others of its pool take no part in and spin through. Nothing where SciPy has another BLAS."""
    library = ctypes.CDLL(import_module("scipy.linalg.cython_blas").__file__)
    try:
        told, tell = library.scipy_openblas_get_num_threads, library.scipy_openblas_set_num_threads
    except AttributeError:
        yield
        return
    before = told()
    tell(1)
    try:
        yield
    finally:
        tell(before)


def _next(series: Floats, orders: Sequence[tuple[int, int, int]]) -> float:
    last = float(series[-1])
    if len(series) < LEAST_WINDOWS or np.ptp(series) == 0:
        return last
    shares = np.clip(series, CLIP, 1 - CLIP)
    logits = np.log(shares / (1 - shares))
    with one_blas_thread():
        found = [one for order in orders if (one := _fitted(logits, order)) is not None]
    if not found:
        return last
    return float(1 / (1 + np.exp(-min(found)[1])))


def _fitted(logits: Floats, order: tuple[int, int, int]) -> tuple[float, float] | None:
    """(AIC, forecast) of an order, or None. Likelihoods compare when they are of equally many
    values: a difference takes one away, so without it the oldest value is left out."""
    from statsmodels.tsa.arima.model import ARIMA  # puts a filter of its own before all others

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        differences = order[1]
        trend = "n" if differences else "c"
        try:
            model = ARIMA(logits[1 - differences :], order=order, trend=trend)
            fit = model.fit(method_kwargs={"maxiter": _MOST_STEPS, "disp": 0})
            aic, value = float(fit.aic), float(fit.forecast()[0])
        except (ValueError, ArithmeticError, np.linalg.LinAlgError, IndexError):
            return None
    return (aic, value) if math.isfinite(aic) and math.isfinite(value) else None
