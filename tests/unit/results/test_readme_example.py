"""The pandas example of the documentation, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import results
from tests.support.results.make_trials import generation, record, trial

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```python\n((?:import [^\n]*\n)*import results\n.*?)```", re.DOTALL)


def example() -> str:
    found = BLOCK.search((ROOT / "docs" / "pandas.md").read_text())
    assert found is not None
    return found.group(1)


def test_the_example_runs_and_answers_its_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "fast" takes half the time per token on answers of more than 16 tokens, and no less on the
    others; a one-token answer has no speed-up and must not spoil the mean."""
    monkeypatch.chdir(tmp_path)
    store = results.Store(Path("runs/demo"))
    store.write_experiment(yaml.safe_dump({"name": "demo", "reference": "vllm"}))
    for backend, long_step in (("vllm", 10), ("fast", 5)):
        generations = [
            generation(f"r{n}", [10 + i * (long_step if n > 16 else 10) for i in range(n)])
            for n in (1, 4, 16, 17, 30)
        ]
        store.write(record(trial(backend), generations))
    names: dict[str, Any] = {}
    exec(compile(example(), "docs/pandas.md", "exec"), names)
    table = names["table"]
    assert table.loc[("gsm8k", "fast")].to_dict() == pytest.approx({"<=16": 1.0, "<=64": 2.0})
    assert table.loc[("gsm8k", "vllm")].to_dict() == pytest.approx({"<=16": 1.0, "<=64": 1.0})
    assert "fast" in capsys.readouterr().out


def test_the_readme_shows_the_same_example() -> None:
    shown = BLOCK.search((ROOT / "README.md").read_text())
    assert shown is not None, "README.md does not show the pandas example"
    assert shown.group(1) == example()
