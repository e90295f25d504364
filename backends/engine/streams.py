"""What goes into the decoder and comes out: requests on their way, and their verified tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from backends.engine.sampling import GREEDY, TokenSampling


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
    layers_run: float = 0
    """Since the last output; a sublayer counts half."""
    slot: int = -1
    finished: str | None = None
    """None, "stop" or "length"."""
    margins: dict[str, float] = field(default_factory=dict)
    last: int | None = None
    """The answer ends with this many tokens, as if the last one were a stop token; None: tokens and
    `max_new_tokens` alone decide."""
    cap: int | None = None
    """Most drafts that may wait for verification, whatever a drafter would make; None: no such
    limit."""

    @property
    def most(self) -> int:
        """How many tokens the answer has at most."""
        return self.max_new_tokens if self.last is None else self.last

    @property
    def drafts(self) -> int:
        """How many drafts wait for verification."""
        return len(self.tokens) - 1 - self.done[-1]

    def room(self, max_drafts: int) -> int:
        """How many more drafts there is room for among `max_drafts`, and in the answer beside the
        token that their verification brings; none where it is not positive."""
        if self.cap is not None and self.cap < max_drafts:
            max_drafts = self.cap
        here = max_drafts - self.drafts
        left = self.max_new_tokens - 1 - (len(self.tokens) - len(self.prompt))
        return here if here < left else left


@dataclass(frozen=True, slots=True)
class Output:
    """Verified tokens of one sequence."""

    id: str
    tokens: tuple[int, ...]
    finished: str | None
    """None, "stop" or "length"."""
    counts: dict[str, float]


def kept(
    drafts: Sequence[int],
    chosen: Sequence[int],
    stops: Collection[int],
    left: int,
    *,
    trusts: bool = False,
) -> tuple[list[int], int]:
    """What a verification emits: drafts as far as they equal the chosen tokens, and the first
    chosen one that differs. Text equal to plain decoding's rests on this.

    Args:
        drafts: token ids behind the newest verified one.
        chosen: what the model selects behind that one, and behind each draft, as far as it judged.
        stops: nothing is emitted behind one of them.
        left: most tokens that the answer has room for, at least 1.
        trusts: drafts stand as they are.

    Returns:
        The tokens, and how many of them were drafts.
    """
    emitted: list[int] = []
    accepted = 0
    for place, token in enumerate(chosen):
        hit = place < len(drafts) and (token == drafts[place] or trusts)
        emitted.append(drafts[place] if hit else token)
        accepted += hit
        if not hit or emitted[-1] in stops or len(emitted) == left:
            break
    return emitted, accepted
