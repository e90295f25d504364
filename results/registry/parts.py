"""Metrics that say what a speed-up is made of."""

from __future__ import annotations

from collections.abc import Iterator

from results.compare.stats import FEWEST_LENGTHS, geometric_mean
from results.registry.metric import Metric, TrialInputs

_TEXTS = {
    "speedup_steps": "The part of `speedup` that comes of fewer steps for a token: the reference's "
    "steps per token / this backend's, paired and pooled like `speedup`. Where both count steps, "
    "`speedup` = `speedup_steps` x `speedup_step_time`.",
    "speedup_step_time": "The part that comes of a step's time: the reference's decode time per "
    "step / this backend's. Below 1 where a step does more, as a verification or a draft does.",
    "speedup_length": "The reference's tokens after the first commit / this backend's: above 1 "
    "where its answers are shorter. The product of the three is the ratio of whole decode times.",
}
_FEW = f" Empty where the answers to fewer than {FEWEST_LENGTHS} prompts differ in length."


def _metrics() -> Iterator[Metric]:
    for name, text in _TEXTS.items():
        yield Metric(
            name=name,
            section="speed",
            text=text,
            formula=lambda t, name=name: _mean(t, name),  # type: ignore[misc]
            needs="reference",
            better="" if name == "speedup_length" else "larger",
            pooled="pairs",
            void_with="reference speed",
        )
        for end, which in (("low", "lower"), ("high", "upper")):
            yield Metric(
                name=f"{name}_{end}",
                section="speed",
                text=f"The {which} end of its 95% interval." + _FEW * (name == "speedup_length"),
                formula=None,
                pooled="pairs",
                void_with="reference speed",
            )


def _mean(t: TrialInputs, name: str) -> float | None:
    parts = t.against.parts if t.against else None
    return geometric_mean(parts[name]) if parts else None


PARTS = tuple(_metrics())
