"""What a backend decided while it decoded, where it was asked to record it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Decisions:
    """What a decoding method decided for one request, in the order in which it did.

    An *attempt* is one try to say a token before the last layer. There may be several at a
    position, where a draft was thrown away and made anew. Each has one number per exit.
    """

    positions: list[int] = field(default_factory=list)
    """Of each attempt: 0 is the first token after the prompt's own."""
    confidence: list[float] = field(default_factory=list)
    """Attempts x exits, flat: how sure an exit was, NaN where it was not asked, 0 where it said a
    token that is never said early (a stop token)."""
    agrees: list[int] = field(default_factory=list)
    """Likewise: 1 where the exit's token was the one that the last layer selected, 0 where it was
    another, -1 where nobody knows."""
    drafted: list[int] = field(default_factory=list)
    """Of each full pass, or step: the tokens that it verified."""
    accepted: list[int] = field(default_factory=list)
    """Likewise: those that stood."""
    batch: list[int] = field(default_factory=list)
    """Likewise: the requests under way."""
    asked: list[int] = field(default_factory=list)
    """Likewise, of a method that drafts chains of tokens: those that the drafter was asked for. One
    more than `drafted` where it ended the chain itself, as many where there was no room for more.
    Empty for other methods."""
    offered: list[int] = field(default_factory=list)
    """Likewise, of a method that offers several continuations at once: all the guesses that were
    verified, where `drafted` counts those on the way that was taken, and one that fell at its end.
    Empty for other methods."""

    def extend(self, later: Decisions) -> None:
        """Add what was decided after this."""
        for name in self.__slots__:
            getattr(self, name).extend(getattr(later, name))
