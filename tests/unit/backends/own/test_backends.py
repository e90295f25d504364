"""`autoregressive` and `adadecode` as backends: the same text, what they say of themselves, and one
line for what they cannot take."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends import check_options, pins
from backends.checkpoints import exit_heads
from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Request, Sampling
from harness.measure.load_loop import run_load
from tests.support.exits.demo_answers import DEMO, answer, demo_requests, opened
from tests.support.tiny_llama import write_tiny_llama


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gamma": 0.0, "exit_layers": [1, 4], "max_drafts": 8},
        {"gamma": 0.5, "exit_layers": [2], "shortlist": 300},
        {"heads": "original", "gamma": 0.2},
    ],
    ids=["auto", "reckless", "shortlist", "original"],
)
def test_adadecode_gives_the_text_of_plain_decoding(dtype: str, options: dict[str, Any]) -> None:
    requests = demo_requests(2, Sampling(0.7, 0.9, 3)) + [
        Request(f"greedy-{r.id}", r.prompt_ids, r.max_new_tokens, Sampling(), r.stop_ids)
        for r in demo_requests(2)
    ]
    expected = answer(opened("autoregressive", dtype=dtype), requests, 1)
    assert answer(opened("adadecode", dtype=dtype, **options), requests, 3) == expected


@pytest.mark.parametrize(("name", "kernels"), [("autoregressive", "torch"), ("adadecode", "auto")])
def test_prompts_read_in_pieces_give_the_same_text(
    name: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.engine.executors.torch.TorchExecutor.piece", 64)
    requests = demo_requests(1)
    longest = max(len(request.prompt_ids) for request in requests)
    assert longest >= 128
    expected = answer(opened(name, kernels=kernels, prefill_tokens=longest), requests, 1)
    backend = opened(name, kernels=kernels, prefill_tokens=65)
    assert backend.info.options["prefill_tokens"] == 65
    assert answer(backend, requests, 4) == expected


def test_an_exit_head_is_made_once_for_all_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = exit_heads.HeadFolder.matrix

    def counted(folder: exit_heads.HeadFolder, layer: int, final_head: Any) -> Any:
        made.append(layer)
        return real(folder, layer, final_head)

    monkeypatch.setattr(exit_heads.HeadFolder, "matrix", counted)
    backend = opened("adadecode")
    chosen = backend.info.options["exit_layers"]
    backend.close()
    assert chosen
    assert len(made) == len(set(made)) > len(chosen)


def test_the_seed_decides_what_is_sampled() -> None:
    found = []
    for seed in (3, 3, 4, 5, 6, 7):
        asked = [Request(r.id, r.prompt_ids, 8, Sampling(1.0, 1.0, seed)) for r in demo_requests(1)]
        found.append(answer(opened("autoregressive"), asked, 4))
    assert found[0] == found[1]
    assert len({str(texts) for texts in found}) >= 3, "the model is sure of most tokens, not of all"


def test_greedy_text_is_that_of_transformers(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    directory = write_tiny_llama(tmp_path)
    ids = tuple(range(40, 70))
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with torch.no_grad():
        expected = model.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)
    request = Request("a", ids, 24, stop_ids=(1,))
    (found,) = answer(opened("autoregressive", directory, "float32"), [request], 1)
    assert found == expected[0, len(ids) :].tolist()


def test_info_tells_what_took_effect() -> None:
    backend = opened("adadecode", exit_layers=[3, 2], gamma=0.8)
    info = backend.info
    backend.close()
    assert (info.name, info.provenance, info.lossless) == ("adadecode", "re-implementation", True)
    assert (info.options["exit_layers"], info.options["gamma"]) == ([2, 3], [0.8, 0.8])
    costs = info.measured.costs
    assert costs is not None
    assert (len(costs["segment_us"]), len(costs["exit_head_us"])) == (3, 2)
    assert info.measured.predicted_speedup is not None
    assert info.measured.predicted_speedup > 0
    json.dumps(dict(info.options), allow_nan=False)
    lossy = opened("adadecode", exit_layers=[2], verify=False)
    assert lossy.info.lossless is False
    lossy.close()


def test_what_cannot_be_served_is_an_error_and_harms_nobody() -> None:
    backend = opened("autoregressive")
    requests = [
        Request("empty", (), 4),
        Request("long", (7,) * 1020, 5),
        Request("strange", (5, 99_999), 4),
        Request("fits", (7,) * 20, 4, ignore_eos=True),
    ]
    found = {g.request_id: g for g in run_load(backend, requests, Load("closed", concurrency=4))}
    backend.close()
    assert found["empty"].error == "the prompt is empty"
    assert found["long"].error == (
        "prompt of 1020 tokens and max_new_tokens 5 exceed max_model_len 1024"
    )
    assert found["strange"].error == "a prompt token is outside the vocabulary of 1280"
    assert len(found["fits"].token_ids) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, "option 'gamma': expected at most 1, got 1.5"),
        ({"gamma": "often"}, "option 'gamma': expected float or auto, got 'often'"),
        ({"max_drafts": 16}, "option 'max_drafts': expected at most 15, got 16"),
        ({"exit_layers": [8]}, "option 'exit_layers': no exit after layer 8; expected some of 1,"),
        ({"exit_layers": [2, 2]}, "option 'exit_layers': [2, 2] names a layer twice"),
        ({"exit_layers": ["two"]}, "no exit after layer 'two'"),
        ({"heads": "gsmk8"}, "heads: no folder 'gsmk8'; did you mean 'gsm8k'?"),
        ({"shortlist": 4000}, "option 'shortlist': 4000 is more than the vocabulary of 1280"),
        ({"heads": "original", "shortlist": 40}, "option 'shortlist' needs trained heads"),
        ({"head_dtype": "fp8"}, "fp8 heads run on Triton's kernels, on a GPU; expected auto"),
        ({"max_model_len": 9000}, "max_model_len 9000 exceeds the model's 4096 positions"),
        ({"kernels": "cuda"}, "option 'kernels': 'cuda': expected one of"),
    ],
)
def test_bad_options_are_one_line(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        opened("adadecode", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_are_checked_before_anything_is_loaded() -> None:
    check_options("adadecode", {"gamma": "auto", "exit_layers": [1], "heads": "original"})
    with pytest.raises(UserError, match="unknown option 'gama': did you mean 'gamma'"):
        check_options("adadecode", {"gama": 0.5})


def test_heads_of_another_checkpoint_are_refused(tmp_path: Path) -> None:
    tiny = write_tiny_llama(tmp_path / "tiny")
    with pytest.raises(UserError, match=r"heads\.json: trained for another checkpoint"):
        opened("adadecode", tiny, "float32", heads=str(exit_heads.BUNDLED / "mixed"))
    with pytest.raises(UserError, match="this model has no bundled ones; train some with"):
        opened("adadecode", tiny, "float32")


def test_broken_heads_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "heads"
    shutil.copytree(exit_heads.BUNDLED / "mixed", folder)
    tensors = load_file(folder / "heads.safetensors")
    tensors["layer.2.transform"][3, 4] = torch.nan
    save_file(tensors, folder / "heads.safetensors")
    with pytest.raises(UserError, match=r"layer\.2\.transform holds NaN or infinite values"):
        opened("adadecode", heads=str(folder))
    (folder / "heads.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"heads\.safetensors: not readable"):
        opened("adadecode", heads=str(folder))
    (folder / "heads.json").write_text("{}")
    with pytest.raises(UserError, match=r"heads\.json: not readable: 'format'"):
        opened("adadecode", heads=str(folder))


def test_nan_weights_are_refused(tmp_path: Path) -> None:
    directory = write_tiny_llama(tmp_path)
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.3.mlp.down_proj.weight"][0, 0] = torch.nan
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"layers\.3\.mlp\.down_proj\.weight.*NaN"):
        opened("autoregressive", directory, "float32")


@pytest.mark.parametrize("length", [2, 3, 7])
def test_slots_shorter_than_the_drafts_are_calibrated_all_the_same(length: int) -> None:
    """Rows outside the cache were written: the process died in `free`."""
    backend = opened("adadecode", dtype="float32", max_model_len=length, max_drafts=15)
    (found,) = answer(backend, [Request("a", (5,), length - 1)], 1)
    (plain,) = answer(
        opened("autoregressive", dtype="float32", max_model_len=length),
        [Request("a", (5,), length - 1)],
        1,
    )
    assert found == plain
    with pytest.raises(UserError, match="option 'max_model_len': expected at least 2, got 1"):
        opened("adadecode", max_model_len=1)


def damaged_heads(folder: Path, about: Mapping[str, Any], change: Callable[[Any], None]) -> str:
    """The mixed heads, with other entries in ``heads.json`` and changed tensors."""
    shutil.copytree(exit_heads.BUNDLED / "mixed", folder)
    told = json.loads((folder / "heads.json").read_text())
    (folder / "heads.json").write_text(json.dumps(told | about))
    tensors = load_file(folder / "heads.safetensors")
    change(tensors)
    save_file(tensors, folder / "heads.safetensors")
    return str(folder)


def nothing(tensors: dict[str, torch.Tensor]) -> None:
    """No change."""


@pytest.mark.parametrize(
    ("about", "change", "message"),
    [
        ({"layers": []}, nothing, "layers [] are not ascending"),
        ({"layers": ["2"]}, nothing, "layers ['2'] are not ascending"),
        ({"layers": [2, 2]}, nothing, "layers [2, 2] are not ascending"),
        ({"layers": [2, 4]}, nothing, "for layers (2, 4)"),
        ({}, lambda found: found.pop("trace.start"), "'trace.start'"),
        ({}, lambda found: found.pop("token_order"), "'token_order'"),
        ({}, lambda found: found["token_order"].add_(5000), "token_order does not name each"),
        (
            {},
            lambda found: found.update({"layer.3.transform": torch.eye(64)}),
            "layer.3.transform has shape [64, 64], not [256, 256]",
        ),
    ],
)
def test_heads_that_no_training_wrote_are_refused_in_one_line(
    tmp_path: Path, about: Mapping[str, Any], change: Callable[[Any], None], message: str
) -> None:
    folder = damaged_heads(tmp_path / "heads", about, change)
    with pytest.raises(UserError) as caught:
        exit_heads.open_folder(Path(folder), DEMO)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layers", [[], [2.0], [True]])
def test_exit_layers_are_whole_numbers_and_at_least_one(layers: list[Any]) -> None:
    with pytest.raises(UserError, match="exit_layers'"):
        opened("adadecode", exit_layers=layers)
    with pytest.raises(UserError, match="exit_layers'"):
        opened("adadecode", exit_layers=layers, heads="original")


def test_the_digest_of_files_follows_the_heads(tmp_path: Path) -> None:
    model = Model("demo")
    mixed = pins.files("adadecode", model, {})
    assert [*mixed] == ["mixed/heads.json", "mixed/heads.safetensors"]
    assert mixed == pins.files("adadecode", model, {"heads": "mixed"})
    assert pins.files("adadecode", model, {"heads": "original"}) == {}
    assert pins.files("adadecode", model, {"heads": str(tmp_path / "none")}) == {}
    assert pins.files("autoregressive", model, {}) == {}
    same = damaged_heads(tmp_path / "same", {}, nothing)
    other = damaged_heads(tmp_path / "other", {}, lambda found: found["layer.1.transform"].add_(1))
    for name in (exit_heads.ABOUT, exit_heads.TENSORS):
        shutil.copy(exit_heads.BUNDLED / "mixed" / name, same)
    again = pins.files("adadecode", model, {"heads": same})
    assert [*again.values()] == [*mixed.values()]
    assert [*pins.files("adadecode", model, {"heads": other}).values()] != [*mixed.values()]
