"""What goes into the decoder and comes out: requests on their way, and when to predict early."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.engine.sampling import GREEDY, TokenSampling


@dataclass(frozen=True, slots=True)
class PredictionPolicy:
    """When to predict early. Without exits it says nothing."""

    gammas: tuple[float, ...] = ()
    """A prediction counts when its probability is above that of its exit."""
    max_drafts: int = 5
    """Most early predictions of a sequence that wait for verification."""
    max_batch: int | None = None
    """Nothing is predicted early while more streams are under way: in a batch the deepest one of
    each step decides, and what the others drafted costs rows. None: no such limit."""
    verify: bool = True
    """False: early predictions stand as they are. Lossy; the paper's ablation."""


@dataclass(slots=True)
class Stream:
    """A request on its way through the engine."""

    id: str
    prompt: tuple[int, ...]
    """At least one token; prompt and answer together fit into a slot."""
    max_new_tokens: int
    stops: frozenset[int] = frozenset()
    sampling: TokenSampling = GREEDY
    tokens: list[int] = field(default_factory=list)
    """Prompt, verified tokens and drafts."""
    done: list[int] = field(default_factory=list)
    """Positions that each segment has processed."""
    exits: list[int] = field(default_factory=list)
    """The exit that each draft came from, by number."""
    checks: list[int] = field(default_factory=list)
    """Since the last output: the exits whose heads were asked."""
    layers_run: int = 0
    """Since the last output."""
    slot: int = -1
    margins: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """Verified tokens of one sequence."""

    id: str
    tokens: tuple[int, ...]
    finished: str | None
    """None, "stop" or "length"."""
    counts: dict[str, float]
