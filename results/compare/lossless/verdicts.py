"""Is a backend's text the reference's: lossless, within the noise, or lossy?

- lossless: every answer that could be compared has the reference's token ids.
- within noise: some differ, but no more than the reference differs from itself as far as enough
  prompts can tell, and nowhere where it was sure; or only where its two best tokens were as good
  as equal.
- lossy: more differ than that, or one where the reference was sure, or one on its own kernels.
- unknown: too few answers tell noise from another text, or nothing could be compared.

Sampled text of engines with other draws is compared as a distribution (`sampled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from results.compare.intervals.wilson import wilson_interval
from results.compare.lossless.evidence import TextFork
from results.compare.lossless.exchanged import (
    PromptAgain,
    answered_again,
    p_apart,
    p_less_consistent,
)
from results.compare.lossless.sampled import DEEPEST, FEWEST, fisher

LosslessVerdict = Literal["lossless", "within noise", "lossy", "unknown"]
SELDOM = "no prompt was asked often enough of both: 'rows' far below 'requests'"
ALPHA = 0.05
"""Greatest chance that a backend that is as consistent as the reference, or draws from the same
distribution, is called lossy."""
TIES = {"float32": 2**-10, "float16": 2**-5, "bfloat16": 0.25}
"""By dtype: a top-2 logit margin that rounding in another order can turn over. Logits are about 16,
whose neighbours in bfloat16 are 0.06 or 0.12 apart, and layers round before them."""


@dataclass(frozen=True, slots=True)
class BackendText:
    """The verdict on the text of one backend."""

    backend: str
    options: Mapping[str, Any]
    label: str | None
    model: str
    dtype: str
    machine: str
    """Its fingerprint."""
    against: str
    """The backend that it is held against."""
    is_reference: bool
    """Whether the row is that backend against itself: the noise floor."""
    promised: bool | None
    """Whether it says of itself that it is lossless."""
    verdict: LosslessVerdict
    why: str
    pairs: int
    equal: int
    requests: int
    """Different prompts: one that is asked again, as ID#2, counts once."""
    low: float | None
    """Of the share of equal answers, at 95%; over different prompts, since repeats repeat."""
    high: float | None
    noise_floor: float | None
    fork: TextFork | None
    """The earliest one, where the other was surest among equals."""
    surest: float | None
    """The largest margin at which a text forks; None where none is known."""
    p_value: float | None
    """Of the test on distributions."""
    distance: float | None
    setting: Mapping[str, Any] = field(default_factory=dict)
    """What tells it from others of the run: `results.compare.machines.settings`."""

    @property
    def consistency(self) -> float | None:
        """Share of equal pairs."""
        return self.equal / self.pairs if self.pairs else None


def text_verdicts(found: Sequence[Mapping[str, Any]]) -> list[BackendText]:
    """A verdict for each backend with its options on each model, dtype and machine in each setting,
    over all cells.

    Args:
        found: the evidence of all cells, as `results.compare.lossless.cells.in_settings` has it.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in found:
        groups.setdefault((one["variant"], *_against(one)), []).append(one)
    return [_verdict(cells, _own_cells(found, cells)) for cells in groups.values()]


def _against(one: Mapping[str, Any]) -> tuple[Any, ...]:
    own = one["model"], one["dtype"], one["machine"], one["against"]
    return *own, *one["setting"].items()


def _own_cells(
    found: Iterable[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """What the backend that `cells` are held against says of itself on the same workloads."""
    against, workloads = _against(cells[0]), {cell["checksum"] for cell in cells}
    alike = (cell for cell in found if cell["is_self"] and _against(cell) == against)
    return [cell for cell in alike if cell["checksum"] in workloads]


@dataclass(frozen=True, slots=True)
class _AddedUp:
    """The evidence of several cells."""

    pairs: int
    equal: int
    prompts: Mapping[str, int]
    """Different ones among the pairs, by workload."""
    differing: Mapping[tuple[str, str], tuple[int, int]]
    forks: Sequence[TextFork]

    @property
    def requests(self) -> int:
        """Different prompts."""
        return sum(self.prompts.values())

    @property
    def share(self) -> float | None:
        return self.equal / self.pairs if self.pairs else None

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share, at 95%; over different prompts."""
        return wilson_interval(self.share or 0.0, self.requests)

    @property
    def surest(self) -> float | None:
        return max((f["margin"] for f in self.forks if f["margin"] is not None), default=None)


def _added_up(cells: Sequence[Mapping[str, Any]]) -> _AddedUp:
    differing: dict[tuple[str, str], tuple[int, int]] = {}
    prompts: dict[str, int] = {}
    forks: dict[tuple[str, str, int], TextFork] = {}
    for cell in cells:
        workload, told = cell["checksum"], cell["evidence"]
        # the same prompts under another load are no others
        prompts[workload] = max(prompts.get(workload, 0), told["requests"])
        for name, (equal, pairs) in told["differing"].items():
            before = differing.get((workload, name), (0, 0))
            differing[workload, name] = before[0] + equal, before[1] + pairs
        for fork in told["forks"]:
            forks.setdefault((workload, fork["request"], fork["token"]), fork)
    return _AddedUp(
        sum(cell["evidence"]["pairs"] for cell in cells),
        sum(cell["evidence"]["equal"] for cell in cells),
        prompts,
        differing,
        list(forks.values()),
    )


def _verdict(
    cells: Sequence[Mapping[str, Any]], own_cells: Sequence[Mapping[str, Any]]
) -> BackendText:
    first, added, own = cells[0], _added_up(cells), _added_up(own_cells)
    draws = _tests(cells)
    p_value = None
    if first["other_draws"]:
        verdict, why, p_value = _of_draws(draws, len({cell["checksum"] for cell in cells}))
    else:
        groups = {cell["group"] for cell in own_cells if cell["evidence"]["pairs"]}
        floored = _added_up([cell for cell in cells if cell["group"] in groups])
        again = answered_again(cells, own_cells)
        tie = TIES.get(first["dtype"], max(TIES.values()))
        exact = all(cell["same_arithmetic"] for cell in cells)
        verdict, why = _of_texts(added, own, floored, again, tie, is_exact=exact)
        if verdict == "unknown" and added.pairs and first["lossless"] is False:
            verdict, why = "lossy", "is none that promises it, and gives another text"
    low, high = added.interval
    compared = added.pairs > 0 and not first["other_draws"]
    forks = sorted(added.forks, key=lambda fork: (fork["token"], -(fork["margin"] or 0.0)))
    return BackendText(
        backend=first["backend"],
        options=first["options"],
        label=first["label"],
        model=first["model"],
        dtype=first["dtype"],
        machine=first["machine"],
        against=first["against"],
        is_reference=first["is_self"],
        promised=first["lossless"],
        verdict=verdict,
        why=why,
        pairs=added.pairs,
        equal=added.equal,
        requests=added.requests,
        low=low if compared else None,
        high=high if compared else None,
        noise_floor=own.share,
        fork=forks[0] if forks and compared else None,
        surest=added.surest if compared else None,
        p_value=p_value,
        distance=None if p_value is None else _distance(draws),
        setting=first["setting"],
    )


def _of_texts(
    found: _AddedUp,
    own: _AddedUp,
    floored: _AddedUp,
    again: Sequence[PromptAgain],
    tie: float,
    *,
    is_exact: bool,
) -> tuple[LosslessVerdict, str]:
    """`floored`: what was found where the reference answered more than once, `again` by prompt.
    `is_exact`: the reference's kernels and threads, which have to give its text."""
    if not found.pairs:
        return "unknown", "no answers could be compared"
    if found.equal == found.pairs:
        return "lossless", f"all {found.pairs:,} pairs are equal"
    sure = max(tie, own.surest or 0.0)
    if found.surest is not None and found.surest > sure:
        return "lossy", f"leaves an answer of which the reference was sure by {found.surest:.3g}"
    is_noisy = own.equal < own.pairs
    ties = found.forks and all(fork["margin"] is not None for fork in found.forks)
    p_value = p_less_consistent(again)
    if p_value < ALPHA and (is_noisy or not ties):
        return "lossy", f"differs more than the reference from itself (p = {p_value:.2g})"
    if ties:
        return "within noise", f"only where two tokens were within {sure:.3g} of each other"
    if is_noisy:
        return _of_noise(floored, own, p_value)
    if not own.pairs:
        return "unknown", "the reference was run once, and no margins were recorded"
    if is_exact:
        return "lossy", "has the kernels and threads of plain decoding, which never differs"
    p_value = p_apart(again)
    told = f"{found.pairs - found.equal:,} of {found.pairs:,} answers differ, none of the "
    if p_value < ALPHA:
        return "lossy", f"{told}reference's own (p = {p_value:.2g})"
    return "unknown", (
        f"{told}reference's own (p = {p_value:.2g}): more of its repeats or margins would tell"
    )


def _of_noise(floored: _AddedUp, own: _AddedUp, p_value: float) -> tuple[LosslessVerdict, str]:
    """What a sign test that finds nothing is worth: it must be able to find a backend that shares
    no answer, and the share of equal answers must reach the noise floor."""
    never = sum(not equal for equal, _ in own.differing.values())
    telling = max(0, floored.requests - never)
    if 2**-telling >= ALPHA:
        return "unknown", f"too few prompts that the reference answers alike again ({telling})"
    assert own.share is not None
    if floored.interval[1] < own.share:
        few = "fewer equal answers than the noise floor, but too few prompts to call it lossy"
        return "unknown", f"{few} (p = {p_value:.2g})"
    told = "no evidence that it differs more than the reference from itself"
    return "within noise", f"{told} (p = {p_value:.2g})"


def _tests(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tests on distributions that count. Under every load the seeds are the same: the one with
    most draws does. Where no beginning was compared, p is 1 and would hide what others show."""
    found = [cell for cell in reversed(cells) if cell["evidence"]["draws"]]
    found.sort(key=lambda cell: cell["evidence"]["draws"]["draws"])
    tests = list({cell["checksum"]: cell["evidence"]["draws"] for cell in found}.values())
    return [one for one in tests if one["beginnings"]] or tests


def _of_draws(
    draws: Sequence[Mapping[str, Any]], workloads: int
) -> tuple[LosslessVerdict, str, float | None]:
    count, beginnings = (sum(one[name] for one in draws) for name in ("draws", "beginnings"))
    if len(draws) < workloads and not beginnings:
        return "unknown", SELDOM, None
    p_value = fisher([one["p_value"] for one in draws])
    if not beginnings:
        if not all(one["alike"] for one in draws):
            rare = f"tokens that came less than {FEWEST} times or after the first {DEEPEST}"
            return "unknown", f"answers differ in {rare}, or in where they end", None
        why = f"every answer to a prompt is the same on both sides ({count:,} draws)"
        return "within noise", f"{why}; a higher 'temperature' would test more", p_value
    told = f"next tokens after {beginnings:,} shared beginnings"
    if p_value < ALPHA:
        return "lossy", f"another distribution: {told} differ (p = {p_value:.2g})", p_value
    told = f"no evidence of other {told} of {count:,} draws (p = {p_value:.2g})"
    return "within noise", told, p_value


def _distance(draws: Sequence[Mapping[str, Any]]) -> float | None:
    total = sum(one["draws"] for one in draws)
    return sum(one["distance"] * one["draws"] for one in draws) / total if total else None
