"""What a real engine did, step by step, held against the plain PyTorch reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.names import ATTENDED, CACHED_TOKENS, PASS_US, PREEMPTIONS
from harness.core.nouns import Request
from tests.support.exits.exit_reference import Decided, ExitReference, Rule

LEFT_OUT = ("check_us", "fill_us", "forward_us", PASS_US, CACHED_TOKENS, ATTENDED, PREEMPTIONS)


@dataclass
class ReplayOutcome:
    """How an engine's run compares."""

    problems: list[str] = field(default_factory=list)
    """The first difference says what, the following ones may be its consequences."""
    batches: Counter[int] = field(default_factory=Counter)
    """Steps that only decoded, by how many sequences."""
    exits: Counter[int] = field(default_factory=Counter)
    """The same steps, by exit layer."""
    spread: int = 0
    """Steps in which sequences had different exits of their own."""
    mixed: int = 0
    """Steps with prompt tokens in which something decoded."""
    tokens: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Of each request that is not answered yet, what its tokens counted so far."""
    logit_margin: float = 0.0
    confidence_margin: float = 0.0

    def verdict(self) -> str:
        """Empty when everything was equal."""
        if not self.problems:
            return ""
        tie = self.logit_margin < 1e-4 or self.confidence_margin < 1e-5
        kind = "perhaps a tie" if tie else "no tie"
        return (
            f"{self.problems[0]} ({len(self.problems)} differences; {kind}: logits came as near as "
            f"{self.logit_margin:.2g}, confidences {self.confidence_margin:.2g} to a threshold)"
        )


def replay(
    directory: Path, rule: Rule, requests: Iterable[Request], polls: Iterable[Mapping[str, Any]]
) -> ReplayOutcome:
    """Decide every recorded step anew and compare tokens, exits and counts.

    `polls` are those of `tests/support/children/early_exit_child.py`.
    """
    reference = ExitReference(directory, rule)
    for request in requests:
        reference.submit(request)
    found = ReplayOutcome()
    for number, poll in enumerate(polls):
        if "reset" in poll:
            reference.decode_steps = 0
            continue
        told = {commit[0]: commit for commit in poll["commits"]}
        steps = [step for step in poll["steps"] if step]
        for rows in steps:
            _compare(reference, rows, told, found, f"poll {number}")
        if told:
            found.problems.append(f"poll {number}: commits without a step: {sorted(told)}")
    found.tokens = {n: a.tokens[a.prompt :] for n, a in reference.sequences.items()}
    found.logit_margin = reference.logit_margin
    found.confidence_margin = reference.confidence_margin
    return found


def _compare(
    reference: ExitReference,
    rows: Mapping[str, Any],
    told: dict[str, Any],
    found: ReplayOutcome,
    where: str,
) -> None:
    decoding = [
        name
        for name, (start, count) in rows.items()
        if start + count == len(reference.sequences[name].tokens)
        and len(reference.sequences[name].tokens) > reference.sequences[name].prompt
    ]
    decided = reference.step({name: (start, count) for name, (start, count) in rows.items()})
    if not decided.mixed:
        found.batches[len(rows)] += 1
        found.exits[decided.exit_layer] += 1
        found.spread += len(set(decided.own.values())) > 1
    found.mixed += bool(decoding) and decided.mixed
    for name, token in decided.tokens.items():
        commit = told.pop(name, None)
        if commit is None:
            found.problems.append(f"{where}: {name}: no token; expected {token}")
            continue
        _, tokens, finished, telemetry, error, of_token = commit
        counts = counted(reference, decided, name, len(decoding)) if name in decoding else {}
        seen = untimed(of_token)
        sums = found.counts.setdefault(name, Counter())
        sums.update(counts)
        last = len(reference.sequences[name].tokens) - reference.sequences[name].prompt
        ends = "length" if last == reference.sequences[name].limit else None
        if (tokens, finished, error) != ([token], ends, None):
            found.problems.append(
                f"{where}: {name}: {tokens} {finished} {error}; expected {token} {ends}; counts "
                f"{seen}, expected {counts}"
            )
        if seen != counts:
            found.problems.append(f"{where}: {name}: counts {seen}; expected {counts}")
        if (handed := untimed(telemetry)) != (sums if ends else {}):
            found.problems.append(f"{where}: {name}: handed out {handed}; expected {dict(sums)}")
        if ends:
            del found.counts[name]


def untimed(telemetry: Mapping[str, float]) -> dict[str, float]:
    """What does not depend on the machine."""
    return {n: c for n, c in telemetry.items() if n not in LEFT_OUT}


def counted(
    reference: ExitReference, decided: Decided, name: str, decoding: int
) -> dict[str, float]:
    """The telemetry of one decoded token."""
    rule, depth = reference.rule, reference.depth
    leaves, own = decided.exit_layer, decided.own[name]
    counts: dict[str, float] = {
        "steps": 1,
        "layers_run": leaves,
        "layers_skipped": depth - leaves,
        "layers_total": depth,
        "layers_needed": own,
        "batch_rows": decoding,
    }
    if decided.mixed:
        return {**counts, "mixed_steps": 1}
    for layer in rule.checked():
        if layer <= leaves:
            counts[f"checks_layer_{layer}"] = 1
    if leaves < depth:
        counts[f"exits_layer_{leaves}"] = 1
    if own < depth:
        counts[f"own_exits_layer_{own}"] = 1
    counts[f"decode_steps_batch_{decoding}"] = 1
    counts[f"decode_layers_batch_{decoding}"] = leaves
    return counts
