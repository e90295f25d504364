"""What trained draft heads are worth on held-out answers, greedily drafted and verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from backends.training.drafts.data import DraftData, DraftTexts, right


@torch.no_grad()
def acceptance_report(
    data: DraftData, drafts_of: Callable[[DraftTexts], Sequence[Tensor]], drafts: int
) -> dict[str, Any]:
    """Acceptance over all held-out answers and over those of each workload.

    Drafts are judged as in decoding: each verification begins where the one before it ended. No
    decoding is needed for it, since a draft counts only where all before it are the answer's own
    tokens, which are therefore what the next one reads.

    Args:
        data: the held-out texts.
        drafts_of: what goes into the target's head, per draft [B, A, d].
        drafts: how many are made for each verification.
    """
    head = data.backbone.head
    rows: dict[int, Tensor] = {}

    def judge(found: DraftTexts) -> list[Tensor]:
        same = right(head, drafts_of(found), found).cpu()
        counts = found.texts.counts.tolist()
        return [own[:count] for own, count in zip(same, counts, strict=True)]

    for group, judged in data.over(range(len(data)), judge):
        rows |= dict(zip(group, judged, strict=True))
    names = [prompt.workload for prompt, _ in data.used]
    report = {"all": _summary([rows[i] for i in range(len(names))], drafts)}
    for name in dict.fromkeys(names):
        report[name] = _summary([rows[i] for i, own in enumerate(names) if own == name], drafts)
    return report


def walk(same: Tensor) -> list[tuple[int, int]]:
    """The verifications of one answer whose first token is there: drafts judged and accepted.

    Those behind the answer's end are not judged, as in the metrics `judged_at_I` and
    `accepted_at_I`.

    Args:
        same: bool [n, drafts], whether draft j of a row begun at a place is the answer's token; n
            tokens are left.
    """
    found, place = [], 0
    while place < len(same):
        judged = min(same.shape[1], len(same) - place)
        accepted = int(same[place, :judged].long().cumprod(0).sum())
        found.append((judged, accepted))
        place += accepted + 1
    return found


def _summary(answers: Sequence[Tensor], drafts: int) -> dict[str, Any]:
    """`tokens_per_step` counts the target's own token of each verification, up to the answer's
    end; `acceptance` is by position, of the drafts whose predecessors were accepted."""
    steps = [step for own in answers for step in walk(own)]
    tokens = sum(len(own) for own in answers)
    by_position = []
    for place in range(drafts):
        asked = sum(judged > place and accepted >= place for judged, accepted in steps)
        taken = sum(accepted > place for _, accepted in steps)
        by_position.append(round(taken / asked, 4) if asked else None)
    return {
        "answers": len(answers),
        "tokens": tokens,
        "tokens_per_step": round(tokens / len(steps), 4),
        "acceptance": by_position,
    }
