"""What an experiment calls a backend, on the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.nouns import Workload
from reports.page import write_report
from reports.variants import workload_labels
from tests.support.results.report_runs import ENGINES, write_run


def test_what_the_experiment_calls_a_backend_stands_in_its_row(tmp_path: Path) -> None:
    small: dict[str, Any] = {"workloads": ["gsm8k"], "repeats": 1, "requests": 3}
    folder = write_run(tmp_path, engines=ENGINES[:2], **small)
    asked = folder / "experiment.yaml"
    named = "- name: vllm-early-exit\n  label: <b>the new one\n"
    asked.write_text(asked.read_text().replace("- name: vllm-early-exit\n", named))
    text = write_report(folder).read_text()
    head = '<span class="name">&lt;b&gt;the new one</span>'
    told = '<span class="options">vllm-early-exit,'
    assert f'{head}</span>\n<span class="provenance">{told}</span>' in text, "in the tables"
    assert f"{head}{told} measure=softmax, threshold=0.8</span>" in text, "on its card"


def test_a_workload_says_how_its_prompts_use_the_chat_template() -> None:
    plain = Workload("gsm8k", "hub")
    quiet = replace(plain, options={"chat": {"template_kwargs": {"enable_thinking": False}}})
    assert [*workload_labels([quiet]).values()] == ["gsm8k (enable_thinking=false)"]
    assert [*workload_labels([plain, quiet]).values()] == [
        "gsm8k hub",
        "gsm8k hub (enable_thinking=false)",
    ]
