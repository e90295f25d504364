"""How hard a row is, by its workload's measure: what the option `mix` divides rows by."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workloads import LABELLED, WORKLOADS, speed_bench
from workloads.labelled import images, turns_of_opinion

SUMMARIES = ("cnn_dailymail", "xsum")
_LONGEST = 100_000
"""Far beyond any row of the data sets; hostile ones would take minutes to count."""


def difficulty(name: str, data: Mapping[str, str]) -> float:
    """How hard a row is (`WorkloadInfo.difficulty`). Texts count up to `_LONGEST` characters."""
    if name == "gsm8k":
        return float(re.sub(r"<<.*?>>", "", data["answer"]).count("="))
    if name in SUMMARIES:
        text, summary = (_words(data[field][:_LONGEST]) for field in WORKLOADS[name].fields)
        known = set(text)
        return sum(word not in known for word in summary) / max(len(summary), 1)
    if name == speed_bench.NAME:
        return float(len(_words(data["prompt"][:_LONGEST])))
    if name in LABELLED:
        content = data[LABELLED[name].content]
        return images.roughness(content) if name == "shapes" else turns_of_opinion(content)
    code = data["canonical_solution" if name == "humaneval" else "code"]
    return float(len(re.findall(r"\w+|[^\w\s]", code[:_LONGEST])))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
