"""A run as another tool would have printed it, as a pandas frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from harness.core.names import QUALITY
from results.compare.pairing import ComparableTrials, Member
from results.frame import TrialNames
from results.metrics import other_tools
from results.prompts import PromptLengths, asked_prompts


def vllm_bench_frame(
    members: Iterable[tuple[Member, ComparableTrials]],
    known: Mapping[str, TrialNames],
    lengths: PromptLengths,
) -> pd.DataFrame:
    """One row per timed trial that ended well: its key and names, and what `vllm bench serve` would
    have printed, by that tool's names. `known`: by trial key."""
    rows = []
    for member, _ in members:
        assert member.requests is not None
        if member.trial.load.kind == QUALITY:
            continue
        prompts = lengths(str(member.trial.workload.checksum))
        _, tokens = asked_prompts(member.requests.ids, prompts)
        found = other_tools.as_vllm_bench(member.requests, member.trial.slo, tokens)
        key = member.stored.record.key
        rows.append({"key": key, **known[key]._asdict(), **found})
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["key", *TrialNames._fields])
