"""Prompts that something was fitted to are known again, and a trial that asks them says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import exit_heads, models
from backends.seen import joined_marks, prompt_mark, read_marks, seen_prompts
from harness.cli import wiring
from harness.cli.session import EngineSession
from harness.experiment.config import parse_experiment
from tests.unit.harness.cli.test_session import Silent
from workloads.measured import load_prompts

DEMO = models.BUNDLED["demo"]
PROMPTS = ((1, 2), (3,), (4, 5, 6))


def noted(source: Path, target: Path, marks: str) -> Path:
    content = json.loads(source.read_text()) | {"prompt_marks": marks}
    target.write_text(json.dumps(content))
    return target


def test_marks_are_of_the_tokens_each_once_in_whatever_order() -> None:
    joined = joined_marks([*PROMPTS, [3]])
    assert joined == joined_marks(reversed(PROMPTS))
    assert read_marks(joined) == {prompt_mark(list(ids)) for ids in PROMPTS}
    assert len(joined) == 16 * len(PROMPTS)
    assert read_marks("") == frozenset()
    for wrong in (5, "abc", None):
        with pytest.raises(ValueError, match="prompt_marks: expected 16 digits"):
            read_marks(wrong)


def test_heads_and_calibrations_say_what_they_were_fitted_to(tmp_path: Path) -> None:
    heads = shutil.copytree(exit_heads.BUNDLED / "mixed", tmp_path / "own")
    asked = [(3,), (4, 5, 6), (7,)]
    assert seen_prompts("adadecode", DEMO, {"heads": str(heads)}, asked) == {}, "none is stored"
    noted(heads / "heads.json", heads / "heads.json", joined_marks(PROMPTS))
    for name in ("adadecode", "own-early-exit"):
        found = seen_prompts(name, DEMO, {"heads": str(heads)}, asked)
        assert found == {"own/heads.json": 2}
        assert seen_prompts(name, DEMO, {"heads": str(heads)}, [(7,)]) == {}
        assert seen_prompts(name, DEMO, {"heads": "nowhere"}, asked) == {}
    noted(heads / "heads.json", heads / "heads.json", "abc")
    assert seen_prompts("adadecode", DEMO, {"heads": str(heads)}, asked) == {}


def test_a_trial_of_such_prompts_has_a_remark(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "name": "x",
        "model": "demo",
        "backends": [{"name": "own-early-exit", "measure": "state"}],
        "reference": "own-early-exit",
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 6,
    }
    calibration = tmp_path / "c.json"
    bundled = models.DEMO / "early_exit" / "calibration-state.json"
    shutil.copy(bundled, calibration)
    content["backends"][0]["calibration"] = str(calibration)
    trial = wiring.resolve(parse_experiment(content, "x.yaml", wiring.known())).trials()[0]
    tokenizer = models.load_tokenizer(DEMO)
    session = EngineSession(Silent(), tokenizer, (), 0.0, directory=DEMO)
    assert session.remarks(trial) == []
    prompts = [prompt.token_ids for prompt in load_prompts(trial, tokenizer)]
    noted(bundled, calibration, joined_marks([*prompts[:4], (1,)]))
    assert session.remarks(trial) == [
        f"prompts-seen: 4 of 6 prompts are among those of {tmp_path.name}/c.json"
    ]
