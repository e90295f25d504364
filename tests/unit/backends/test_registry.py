"""What holds of every backend: the contract kept, models outside its families refused."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends import BACKENDS, check_options, load_class, pins, settings
from backends.scripted import ScriptedBackend
from harness.cli import wiring
from harness.core.backend import Backend, Option
from harness.core.errors import UserError
from harness.core.nouns import Model
from harness.experiment.config import parse_experiment
from tests.support.tiny_llama import CONFIG

OURS = ("autoregressive", "adadecode", "vllm-early-exit")


def folder(path: Path, **changes: Any) -> Path:
    (path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return path


def refusal(name: str, path: Path, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        check_options(name, {}, folder(path, **changes))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"backend '{name}': {path / 'config.json'}: ")
    return message


@pytest.mark.parametrize("name", BACKENDS)
def test_the_contract_is_kept(name: str) -> None:
    cls = load_class(name)
    assert issubclass(cls, Backend)
    for method, told in inspect.getmembers(Backend, inspect.isroutine):
        if not method.startswith("_"):
            own, asked = inspect.signature(getattr(cls, method)), inspect.signature(told)
            assert list(own.parameters) == list(asked.parameters), method
    for key, value in settings(name, {}).items():
        cls.OPTIONS[key].check(key, value)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "architecture GPT2LMHeadModel is not one that it takes; expected",
        ),
        (
            {"architectures": ["Qwen2MoeForCausalLM"]},
            "Qwen2MoeForCausalLM is not one that it takes; expected one of: LlamaForCausalLM, Mist",
        ),
        ({"architectures": []}, "architecture (none named) is not"),
        ({"sliding_window": 64}, "sliding_window: is 64; expected full attention"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised weights are not read"),
        (
            {"architectures": ["MistralForCausalLM"], "max_position_embeddings": 8192},
            "sliding_window: is 4096; expected full attention",
        ),
    ],
    ids=str,
)
def test_what_it_cannot_run_is_refused_before_it_is_loaded(
    name: str, changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """A Mistral whose configuration names no window has transformers' one."""
    assert told in refusal(name, tmp_path, **changes)


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias"])
def test_biases_are_vllm_s_to_compute(key: str, tmp_path: Path) -> None:
    assert f"{key}: is True; expected false" in refusal("autoregressive", tmp_path, **{key: True})
    check_options("vllm-early-exit", {}, folder(tmp_path, **{key: True}))


@pytest.mark.parametrize("name", ["vllm", "http", "scripted"])
def test_others_take_what_their_engine_takes(name: str, tmp_path: Path) -> None:
    check_options(name, {}, folder(tmp_path, architectures=["GPT2LMHeadModel"], sliding_window=64))


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["MistralForCausalLM"], "sliding_window": None},
        {"architectures": ["MistralForCausalLM"], "sliding_window": 4096},
        {"architectures": ["MistralForCausalLM"], "max_position_embeddings": 4096},
        {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": False},
        {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "attention_bias": True},
        {"architectures": ["Qwen3ForCausalLM"], "layer_types": ["full_attention"] * 8},
    ],
    ids=str,
)
def test_relatives_of_llama_with_full_attention(changes: dict[str, Any], tmp_path: Path) -> None:
    check_options("autoregressive", {}, folder(tmp_path, **changes))


class Slipping(ScriptedBackend):
    """Raises what is no `UserError`."""

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        raise KeyError("boo")

    @classmethod
    def files(cls, model_dir: Path, options: Mapping[str, Any]) -> list[Path]:
        return [model_dir / "config.json", model_dir / "none", model_dir]


def test_a_slip_of_a_class_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.load_class", lambda name: Slipping)
    with pytest.raises(
        UserError, match=r"^backend 'scripted': its 'check' failed: KeyError: 'boo'$"
    ):
        check_options("scripted", {})


def test_each_file_is_pinned_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be read must not unpin the others."""
    monkeypatch.setattr("backends.pins.load_class", lambda name: Slipping)
    found = list(pins.files("scripted", Model("demo"), {}).values())
    assert found[1:] == ["missing", "missing"]
    assert len(found[0]) == 16


def test_a_backend_that_cannot_be_imported_concerns_its_own_experiments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BACKENDS, "broken", "backends.none_such:Broken")
    told = "backend 'broken': backends.none_such cannot be imported: ModuleNotFoundError"
    assert wiring.known().backends["broken"] is None
    (listed,) = [entry for entry in wiring.backend_catalogue() if entry["name"] == "broken"]
    assert listed["error"].startswith(told)
    rest = {"model": "demo", "workloads": ["gsm8k"], "load": [{"kind": "closed", "concurrency": 1}]}
    parse_experiment({"name": "a", "backends": ["scripted"], **rest}, "a.yaml", wiring.known())
    with pytest.raises(UserError, match=told):
        parse_experiment({"name": "a", "backends": ["broken"], **rest}, "a.yaml", wiring.known())


def test_choices_are_of_each_item_of_a_list() -> None:
    option = Option(list, [], "", choices=("a", "b"))
    option.check("here", ["a", "b"])
    with pytest.raises(UserError, match=r"^here: 'c': expected one of: a, b$"):
        option.check("here", ["a", "c"])


@pytest.mark.parametrize("name", ["autoregressive", "adadecode", "own-early-exit", "tetris"])
def test_more_threads_than_openmp_starts_are_refused(name: str) -> None:
    check_options(name, {"threads": 1024})
    with pytest.raises(UserError, match="option 'threads': expected at most 1024, got 20000"):
        check_options(name, {"threads": 20_000})
