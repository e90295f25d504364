"""The loads of an experiment file as JSON schema."""

from __future__ import annotations

from harness.experiment.described.keys import CHECKSUM, COUNT, Schema, one_or_more, said
from harness.experiment.loads import FEWEST_POINTS, MOST_POINTS, POINTS, SWEEP

_CONCURRENCY = said(one_or_more(COUNT), "So many requests are kept in flight.", 8, [1, 8])
_RATE = said(
    one_or_more({"type": "number", "exclusiveMinimum": 0}), "Requests per second.", 4, [2, 4, 8]
)
_REDRAW = said(
    {"type": "boolean"},
    "Each repeat draws its arrivals anew, the same for all systems, so that intervals are of the "
    "load; else all repeats have one draw, and they are of this one.",
    True,
    default=False,
)
LOADS: dict[str, tuple[str, dict[str, Schema]]] = {
    "closed": (
        "A number of users, each of whom asks again when answered.",
        {"concurrency": _CONCURRENCY},
    ),
    "poisson": ("Independent arrivals.", {"rate": _RATE, "redraw": _REDRAW}),
    "constant": ("An arrival every 1/rate seconds.", {"rate": _RATE}),
    "gamma": (
        "Arrivals in bursts.",
        {
            "rate": _RATE,
            "burstiness": said(
                one_or_more({"type": "number", "exclusiveMinimum": 0}),
                "Shape of the gaps' gamma distribution: 1 is Poisson, smaller is burstier.",
                0.5,
                default=1.0,
            ),
            "redraw": _REDRAW,
        },
    ),
    "trace": (
        "Recorded arrivals.",
        {
            "trace": said(
                one_or_more({"type": "string"}),
                "A file with a time in seconds a line, or CSV or JSON lines with a column "
                "`timestamp`.",
                "arrivals.csv",
            ),
            "checksum": CHECKSUM,
        },
    ),
    SWEEP: (
        "Poisson arrivals from idle to saturation, at rates that each system finds for itself "
        "(docs/goodput.md). One such entry, beside others or alone.",
        {
            "points": said(
                {**COUNT, "minimum": FEWEST_POINTS, "maximum": MOST_POINTS},
                "Rates for each system, at most.",
                16,
                default=POINTS,
            ),
            "redraw": said(
                {"type": "boolean"},
                "Each repeat of a rate draws its arrivals anew; else all repeats have one draw.",
                True,
                default=False,
            ),
        },
    ),
}
"""By kind of load what it is, and its keys."""
