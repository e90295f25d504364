"""How many tokens to guess, none included, from what passes cost and what has been accepted.

The goodput that TurboSpec controls (Liu et al., 2024, arXiv 2406.14066): with B sequences and up to
k drafts each, the tokens that a verification is expected to bring over the time that drafting and
verification are expected to take. Their expectation is that of the last verifications, by position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

from backends.engine.costs.paying import Paying
from backends.engine.drafters.base import Drafter
from backends.engine.drafters.evidence import Lag, Rate, chained
from backends.engine.streams import Stream

PAUSED = 32
"""Steps with drafts between two choices, each of which takes the time of a small model's layer. The
first ones come sooner, since there is more to learn from a verification."""
WORTH = 1.1
"""Times plain decoding that drafting has to promise: the best of several estimates is too high, and
what is timed in a second on a machine whose pace wanders is wrong by up to a tenth."""
TRIED = 1.25
"""Likewise, of drafts of which as many stand as may well be, for some to be tried on a stream
alone."""
EXPLORED = 64
"""Steps between two at which one more is drafted than seems best, since nothing else could show
that it has become worth while."""
REST = 8, 32
"""Steps without drafts after one of which nothing seemed better, before it is asked again: doubled
each time to at most so many, until a stream ends."""
SPENT = 0.005
"""The share of plain decoding's time that a draft for what it shows may take since the last one,
beyond what it is expected to spare: it has to read all that was decoded meanwhile."""
ASKED_AGAIN = 1024
"""At most so many steps after it was too much: before, twice as many as there had been."""


class DraftCosts(Protocol):
    """What a method's steps cost."""

    @property
    def read_us(self) -> float:
        """Of reading a position that was decoded without drafts, a prompt's included, before
        anything is drafted after it; 0 for a drafter that reads nothing."""

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        """Microseconds of drafting at most 0, 1, 2 ... tokens and of verifying them, one more than
        `tokens` has.

        Args:
            sequences: that are under way.
            positions: theirs together.
            tokens: the share of the sequences that draft an I-th token, if so many may be.
            stands: the share in which so many drafts stand.
        """


class AdaptiveDrafts:
    """A `Drafter` that says how many another may make.

    Of steps without drafts the other is told the last of a stream alone: what stands between a
    small model's passes costs several times what it does by itself, since they use the caches up.

    Args:
        drafter: its `max_drafts` are the most that it may be asked for.
        costs: of its steps.
        hope: the acceptance of a first draft that is supposed before there were any.
        comes: likewise, how often there is one where there may be.
        paying: what steps take as they are run; None: `costs` alone decide.
    """

    def __init__(
        self,
        drafter: Drafter,
        costs: DraftCosts,
        hope: float,
        comes: float = 1.0,
        paying: Paying | None = None,
    ) -> None:
        self._paying = paying
        self._drafter, self._costs, self._hope, self._hoped = drafter, costs, hope, comes
        self.exits, self.max_drafts = drafter.exits, drafter.max_drafts
        self._asked: dict[int, tuple[int, int]] = {}
        """By slot: how many drafts there could be, and how many there are."""
        self._since = self._unseen = 0
        self._patience = EXPLORED
        self._pause = 1
        self._lag = Lag()
        self._rest_of = REST[0]
        self._rest = self._resting = 0
        """Steps without drafts that are still to come, for so many streams."""
        self._chosen: dict[tuple[int, int, int], int] = {}
        """By number of streams and sizes of their texts and of what reading costs a token, since
        the last verifications were looked at."""
        self._seen: Counter[tuple[int, int, int]] = Counter()
        """Verifications by drafts that could be, were and stood; not looked at yet."""
        self._come: list[Rate] = []
        """By position: how often there is such a draft when there is one before it."""
        self._stand: list[Rate] = []
        """Likewise: how often there is one that stands when the one before it stood."""
        self._comes: list[float] = []
        """The share of streams with so many drafts or more."""
        self._stands: list[float] = []
        """That of streams in which so many stand."""
        self._may_stand: list[float] = []
        """As many as may well be, after so few verifications."""
        self._forget_evidence()

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """As many as seem best for so many streams, now and then one more."""
        if self._rest and len(streams) == self._resting:
            self._rest -= 1
            self._since += 1
            return streams
        self._rest = 0
        if self._paying is not None:
            self._paying.over(len(streams), _tokens(streams))
        if self._unseen >= self._pause:
            self._learn()
        best = self._chosen_for(streams, 0.0)
        # what reading costs is looked at where drafts would pay without
        if best and (reading_us := self._reading_us(streams)):
            best = self._chosen_for(streams, reading_us)
        if best and not self._pays(streams):
            return streams
        self._since += 1
        # the newest alone: a drafter that was not asked for long has much to catch up with
        some = streams if best or self.exits else streams[-1:]
        if self._explores(some, best):
            # where not even drafts that all stood would pay there is nothing to be learnt
            most = self._most_if_all_stand(streams, self._reading_us(streams))
            self._since, self._patience = 0, EXPLORED
            if most > best:
                self._pause = 1
                return self._drafted(some, best + 1, streams)
        if best:
            return self._drafted(streams, best, streams)
        self._rest, self._resting = self._rest_of, len(streams)
        self._rest_of = min(2 * self._rest_of, REST[1])
        return streams

    def _pays(self, streams: Sequence[Stream]) -> bool:
        """Whether drafts that seem worth while may be made, by what they took before."""
        if self._paying is None or self._paying.may_draft(len(streams), _tokens(streams)):
            return True
        self._rest, self._resting = self._paying.rest(len(streams), REST[1]), len(streams)
        return False

    def _chosen_for(self, streams: Sequence[Stream], reading_us: float) -> int:
        """`_best`, of streams and a reading like these."""
        positions = _tokens(streams)
        case = len(streams), positions.bit_length(), int(reading_us).bit_length()
        best = self._chosen.get(case)
        if best is None:
            best = self._chosen[case] = self._best(streams, reading_us)
        return best

    def _explores(self, some: Sequence[Stream], best: int) -> bool:
        """Whether it is time for one draft more than the best number, by some of the streams; where
        none is best, whether that is affordable."""
        if best == self.max_drafts or self._since < (EXPLORED if best else self._patience):
            return False
        if best:
            return True
        unread = self._lag.of(some, self.max_drafts + 1) if self._costs.read_us else 0
        positions = _tokens(some)
        plain_us, us, *_ = self._costs.of(len(some), positions, self._comes, self._stands)
        more_us = us + unread * self._costs.read_us - plain_us * (1 + self._stands[0])
        if more_us <= SPENT * self._since * plain_us:
            return True
        self._patience = self._since + min(self._since, ASKED_AGAIN)
        return False

    def _drafted(
        self, some: Sequence[Stream], asked: int, streams: Sequence[Stream]
    ) -> Sequence[Stream]:
        """`streams`, of which some have been drafted for."""
        self._rest_of = REST[0]
        self._unseen += 1
        self._drafter.max_drafts = asked
        self._lag.caught_up(some)
        drafted = self._drafter.draft(some)
        self._note(drafted, asked)
        return drafted if some is streams else streams

    def _note(self, streams: Sequence[Stream], asked: int) -> None:
        for stream in streams:
            # near the end of its answer a stream has room for fewer
            could = min(asked, stream.drafts + max(stream.room(asked), 0))
            self._asked[stream.slot] = could, stream.drafts

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """Take note of what stood; the drafter's own counts."""
        if not self._asked and stream.finished is None:
            return {}
        asked = self._asked.pop(stream.slot, None)
        if asked is not None and stream.finished is None:  # an end judges not all of them
            self._seen[*asked, accepted] += 1
        if stream.finished is not None:
            if self._paying is not None:
                self._paying.over(1, len(stream.tokens))
            self._lag.ended(stream)
            self._rest, self._rest_of = 0, REST[0]
        return self._drafter.verified(stream, accepted)

    def reset(self) -> None:
        """Forget every stream, and what they showed: a trial knows nothing of the one before. What
        drafts take is the machine's, and stays known."""
        if self._paying is not None:
            self._paying.drop()
        self._drafter.reset()
        self._asked.clear()
        self._forget_evidence()

    def _forget_evidence(self) -> None:
        self._since = self._unseen = self._rest = 0
        self._patience = EXPLORED
        self._rest_of = REST[0]
        self._pause = 1
        self._lag = Lag()
        self._chosen.clear()
        self._seen.clear()
        self._come = [Rate() for _ in range(self.max_drafts)]
        self._stand = [Rate() for _ in range(self.max_drafts)]
        self._believe()

    def _learn(self) -> None:
        for (asked, drafted, accepted), count in self._seen.items():
            for rates, reached in ((self._come, drafted), (self._stand, accepted)):
                for place in range(min(asked, reached + 1)):
                    rates[place].add(count, place < reached)
        self._seen.clear()
        self._chosen.clear()
        self._unseen = 0
        self._pause = min(2 * self._pause, PAUSED)
        self._believe()

    def _believe(self) -> None:
        self._comes = chained(self._come, self._hoped)
        self._stands = chained(self._stand, self._hope)
        self._may_stand = chained(self._stand, self._hope, at_best=True)

    def _reading_us(self, streams: Sequence[Stream]) -> float:
        """Of what lies behind, for each token over which that pays off."""
        each = self._costs.read_us
        behind = self._lag.of(streams, self.max_drafts + 1) if each else 0
        return behind * each / self._lag.left(streams) if behind else 0.0

    def _best(self, streams: Sequence[Stream], reading_us: float) -> int:
        """The number of drafts that brings most tokens per microsecond, where each token costs so
        much reading. Where none seems best for a stream alone, but few verifications have said so,
        some are made: what is right cannot be learnt without, and reading a text is too dear for a
        single try. In a batch a try costs as much, and what it could win is less."""
        us = self._us(streams, self._stands)
        usual = _goodput(us, reading_us, self._stands)
        best = max(usual)
        if best > WORTH * usual[0]:
            return usual.index(best)
        if len(streams) > 1:
            return 0
        hoped = _goodput(us, reading_us, self._may_stand)
        return usual.index(max(usual[1:]), 1) if max(hoped) > TRIED * hoped[0] else 0

    def _most_if_all_stand(self, streams: Sequence[Stream], reading_us: float) -> int:
        """The number of drafts that would be best if none ever fell."""
        goodput = _goodput(self._us(streams, self._comes), reading_us, self._comes)
        best = max(goodput)
        return goodput.index(best) if best > WORTH * goodput[0] else 0

    def _us(self, streams: Sequence[Stream], stands: Sequence[float]) -> list[float]:
        positions = _tokens(streams)
        return self._costs.of(len(streams), positions, self._comes, stands)


def _tokens(streams: Sequence[Stream]) -> int:
    return sum([len(stream.tokens) for stream in streams])


def _goodput(us: Sequence[float], reading_us: float, stands: Sequence[float]) -> list[float]:
    """Tokens per microsecond of at most 0, 1, 2 ... drafts, each token of which costs so much
    reading where any are made."""
    brought = list(accumulate(stands, initial=1.0))
    plain, *others = zip(brought, us, strict=True)
    return [plain[0] / plain[1], *(n / (each + reading_us * n) for n, each in others)]
