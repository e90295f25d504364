"""`quick` on a model for which no draft model and no heads are bundled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from harness.cli import main as cli
from harness.cli import run as running
from harness.cli.first import quick as quickly
from harness.core.errors import UserError


def test_drafts_come_from_the_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}
    kept: list[Any] = []
    monkeypatch.setattr(running, "run_parsed", lambda experiment, **_: kept.append(experiment))
    monkeypatch.setattr("backends.warnings", lambda name, _, options: asked.update({name: options}))
    monkeypatch.setattr(quickly, "LIBRARIES", ())

    def ask(model: str, *arguments: str) -> dict[str, Any]:
        asking = ["quick", "--model", model, "--workload", "gsm8k", *arguments]
        cli.app(asking, standalone_mode=False)
        return {choice.name: dict(choice.options) for choice in kept.pop().backends}

    both = {"speculative": {"method": "prompt_lookup"}, "vllm-speculative": {"method": "ngram"}}
    assert ask("demo-draft", "--backend", "speculative,vllm-speculative") == both
    told = "speculative: method prompt_lookup, as for this model no draft model is bundled"
    assert told in capsys.readouterr().err
    with pytest.raises(UserError, match="'adadecode': for this model no heads are bundled"):
        ask("demo-draft", "--backend", "adadecode")
    found = ask("demo-draft")
    assert "adadecode" not in found
    assert "left out: backend 'adadecode'" in capsys.readouterr().err
    assert {name: found[name] for name in both} == {name: asked[name] for name in both} == both
    assert not any(ask("demo").values()), "its draft model is bundled"


def test_no_training_is_advised_for_a_model_that_is_not_taken(tmp_path: Path) -> None:
    shutil.copytree(models.BUNDLED["demo-draft"], tmp_path / "own")
    config = json.loads((tmp_path / "own/config.json").read_text())
    config["architectures"] = ["MixtralForCausalLM"]
    (tmp_path / "own/config.json").write_text(json.dumps(config))
    asking = ["quick", "--model", str(tmp_path / "own"), "--workload", "gsm8k"]
    with pytest.raises(UserError, match=r"'adadecode'.* architecture MixtralForCausalLM is not"):
        cli.app([*asking, "--backend", "adadecode"], standalone_mode=False)
