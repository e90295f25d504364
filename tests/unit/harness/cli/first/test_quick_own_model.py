"""`quick` on a model for which no draft model and no heads are bundled."""

from __future__ import annotations

from typing import Any

import pytest

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
