"""The encoder against transformers' own, and checkpoints under the names of others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends import check_options, open_backend
from backends.classifiers import one_device, weights
from backends.classifiers.config import ramps, read
from backends.classifiers.models.base import by_shape
from backends.classifiers.models.bert import BertClassifier
from backends.tetris.labels import backend
from harness.core.errors import UserError
from harness.core.nouns import Model

LAYERS = 3
PROMPTS = [[2, 9, 3], [2, *range(5, 30), 3], [2, 11, 12, 13, 14, 3], [2, *range(20, 39), 3]]
"""Of several padded lengths, two of them the same."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of random weights, written by transformers."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        num_labels=3,
        initializer_range=0.5,
        id2label={0: "no", 1: "perhaps", 2: "yes"},
    )
    out = tmp_path_factory.mktemp("bert")
    BertForSequenceClassification(config).save_pretrained(out)
    return out


def changed(folder: Path, out: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint with other tensors."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({k: t.clone() for k, t in tensors.items()}, out / "model.safetensors")
    (out / "config.json").write_text((folder / "config.json").read_text())
    return out


@torch.inference_mode()
def outputs(folder: Path, prompts: list[list[int]]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Final logits in the order of the prompts, and the states after the last layer."""
    model = weights.load(folder)
    states = model.start(prompts)
    order = sorted(range(len(prompts)), key=lambda place: by_shape(states[place]))
    batch = model.gather([states[place] for place in order])
    for number in range(1, model.depth + 1):
        batch = model.layer(number, batch)
    back = [order.index(place) for place in range(len(prompts))]
    rows = batch.split()
    return model.final(batch)[back], [rows[place].hidden for place in back]


def test_logits_and_states_are_those_of_transformers(folder: Path) -> None:
    from transformers import BertForSequenceClassification

    theirs = BertForSequenceClassification.from_pretrained(folder).eval()
    logits, hidden = outputs(folder, PROMPTS)
    for prompt, one, states in zip(PROMPTS, logits, hidden, strict=True):
        with torch.inference_mode():
            found = theirs(torch.tensor([prompt]), output_hidden_states=True)
        torch.testing.assert_close(one, found.logits[0], atol=2e-5, rtol=1e-4)
        wanted = found.hidden_states[-1][0]
        torch.testing.assert_close(states[: len(prompt)], wanted, atol=2e-5, rtol=1e-4)


def test_padding_says_nothing(folder: Path) -> None:
    alone = torch.cat([outputs(folder, [prompt])[0] for prompt in PROMPTS])
    torch.testing.assert_close(outputs(folder, PROMPTS)[0], alone, atol=2e-5, rtol=1e-4)


def ramps_of_deebert(tensors: dict[str, Any]) -> None:
    """A ramp behind every layer, as DeeBERT's code stores them: also one that nothing uses."""
    for number in range(LAYERS):
        name = f"bert.encoder.highway.{number}"
        tensors[f"{name}.pooler.dense.weight"] = torch.randn(32, 32)
        tensors[f"{name}.pooler.dense.bias"] = torch.randn(32)
        tensors[f"{name}.classifier.weight"] = torch.randn(3, 32)
        tensors[f"{name}.classifier.bias"] = torch.randn(3)


def test_a_deebert_checkpoint_loads_with_its_ramps(folder: Path, tmp_path: Path) -> None:
    made = changed(folder, tmp_path, ramps_of_deebert)
    model, stored = weights.load(made), load_file(made / "model.safetensors")
    assert model.ramps == ramps(made, read(made)) == (1, 2)
    with torch.inference_mode():
        batch = model.layer(1, model.gather(model.start(PROMPTS[:1])))
        first = batch.split()[0].hidden[0]
        pooler, head = (f"bert.encoder.highway.0.{part}" for part in ("pooler.dense", "classifier"))
        pooled = torch.tanh(stored[f"{pooler}.weight"] @ first + stored[f"{pooler}.bias"])
        wanted = stored[f"{head}.weight"] @ pooled + stored[f"{head}.bias"]
        torch.testing.assert_close(model.ramp(1, batch)[0], wanted, atol=1e-5, rtol=1e-4)


def pabee(tensors: dict[str, Any], numbers: Sequence[int] = range(LAYERS)) -> None:
    """Classifiers behind these layers, the last one's the final one."""
    weight, bias = tensors.pop("classifier.weight"), tensors.pop("classifier.bias")
    for number in numbers:
        tensors[f"classifiers.{number}.weight"] = weight * (number + 1)
        tensors[f"classifiers.{number}.bias"] = bias


def test_pabees_classifiers_share_the_pooler(folder: Path, tmp_path: Path) -> None:
    model = weights.load(made := changed(folder, tmp_path, pabee))
    assert isinstance(model, BertClassifier)
    assert model.ramps == ramps(made, read(made)) == (1, 2)
    state = model.state_dict()
    pooler = state["bert.pooler.dense.weight"]
    assert torch.equal(state["bert.encoder.highway.1.pooler.dense.weight"], pooler)
    heads = [state[f"bert.encoder.highway.{number}.classifier.weight"] for number in (0, 1)]
    assert torch.equal(2 * heads[0], heads[1])
    torch.testing.assert_close(3 * heads[0], state["classifier.weight"])


def test_pabees_final_classifier_is_no_ramp(folder: Path, tmp_path: Path) -> None:
    made = changed(folder, tmp_path, lambda tensors: pabee(tensors, [0, LAYERS - 1]))
    with pytest.raises(UserError, match="behind layer 2; it has them behind 1; expected option"):
        check_options("classifier-early-exit", {"layers": [2]}, made)


def one_ramp(tensors: dict[str, Any], number: int) -> None:
    """Of DeeBERT's, the one behind this layer, from 0."""
    ramps_of_deebert(tensors)
    for name in [name for name in tensors if re.search(rf"highway\.[^{number}]", name)]:
        del tensors[name]


STORED: dict[str, tuple[Callable[[dict[str, Any]], None], tuple[int, ...]]] = {
    "none": (lambda tensors: None, ()),
    "PABEE": (lambda tensors: pabee(tensors, [0, LAYERS - 1]), (1,)),
    "PABEE, the final one only": (lambda tensors: pabee(tensors, [LAYERS - 1]), ()),
    "DeeBERT": (ramps_of_deebert, (1, 2)),
    "DeeBERT, a gap": (lambda tensors: one_ramp(tensors, 1), (2,)),
    "DeeBERT, the unused one only": (lambda tensors: one_ramp(tensors, LAYERS - 1), ()),
}


@pytest.mark.parametrize("sharded", [False, True], ids=["one file", "sharded"])
@pytest.mark.parametrize(("change", "wanted"), STORED.values(), ids=STORED)
def test_the_check_finds_the_ramps_that_are_loaded(
    folder: Path,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    wanted: tuple[int, ...],
    sharded: bool,
) -> None:
    made = changed(folder, tmp_path, change)
    if sharded:
        shard(made)
    assert ramps(made, read(made)) == weights.load(made).ramps == wanted


def shard(folder: Path) -> None:
    """Every other tensor into another file, and an index."""
    tensors, found = load_file(whole := folder / "model.safetensors"), dict[str, str]()
    whole.unlink()
    for number in (0, 1):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        some = {name: tensors[name] for name in [*tensors][number::2]}
        save_file(some, folder / file)
        found |= dict.fromkeys(some, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": found}))


@pytest.mark.parametrize("name", ["classifier-early-exit", "tetris-classifier"])
def test_ramps_may_leave_layers_out(folder: Path, tmp_path: Path, name: str) -> None:
    made = changed(folder, tmp_path, lambda tensors: one_ramp(tensors, 1))
    check_options(name, {"layers": [2]}, made)
    with pytest.raises(UserError, match="no ramp behind layer 1; it has them behind 2; expected"):
        check_options(name, {"layers": [1]}, made)


@pytest.mark.parametrize("name", ["classifier-early-exit", "tetris-classifier"])
def test_missing_ramps_are_refused_before_anything_is_loaded(
    folder: Path, tmp_path: Path, name: str
) -> None:
    told = "no ramp behind layer 1; it has none; expected backend 'classifier', or measure 'never'"
    with pytest.raises(UserError, match=told):
        check_options(name, {}, folder)
    check_options(name, {"measure": "never"}, folder)
    made = changed(folder, tmp_path, ramps_of_deebert)
    check_options(name, {}, made)
    few = changed(folder, made, lambda tensors: one_ramp(tensors, 0))
    with pytest.raises(UserError, match="behind layer 2; it has them behind 1; expected option"):
        check_options(name, {"layers": [2]}, few)
    check_options(name, {"layers": [1]}, few)


@pytest.mark.parametrize("batching", ["shrinking", "together"])
def test_every_layer_with_a_ramp_is_the_default(
    folder: Path, tmp_path: Path, batching: str
) -> None:
    made, options = changed(folder, tmp_path, lambda t: one_ramp(t, 0)), {"batching": batching}
    check_options("classifier-early-exit", options, made)
    model = Model("own", dtype="float32")
    opened = open_backend("classifier-early-exit", made, model, {"threads": 1, **options})
    assert opened.info.options["layers"] == [1]


@pytest.mark.parametrize("name", ["classifier-early-exit", "tetris-classifier"])
def test_what_loads_without_its_ramps_is_refused_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Should the check ever find more than the loader."""
    for module in (one_device, backend):
        monkeypatch.setattr(module, "ramps", lambda *_: (1, 2))
    with pytest.raises(UserError, match="no ramp behind layer 1; it has none"):
        open_backend(name, folder, Model("own", dtype="float32"), {"threads": 1})


def test_the_oldest_names_of_norms_are_known(folder: Path, tmp_path: Path) -> None:
    def old(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            today = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            tensors[today] = tensors.pop(name)

    made = changed(folder, tmp_path, old)
    torch.testing.assert_close(outputs(made, PROMPTS)[0], outputs(folder, PROMPTS)[0])


def refuse(folder: Path, told: str) -> None:
    with pytest.raises(UserError, match=told) as raised:
        weights.load(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("architectures", ["LlamaForCausalLM"], "no classifier with ramps; expected one of: Bert"),
        ("architectures", ["BertForSequenceClasification"], "did you mean 'BertForSequenceClass"),
        ("position_embedding_type", "relative_key", "position_embedding_type: is 'relative_key'"),
        ("hidden_act", "swish", "hidden_act: is 'swish'"),
        ("num_attention_heads", 5, "expected a multiple of the 5 heads"),
        ("num_hidden_layers", 0, "num_hidden_layers: is 0; expected a positive"),
        ("id2label", {"0": "a", "2": "b"}, "id2label: expected a name for each number"),
        ("intermediate_size", 64, r"intermediate.dense.weight: is \(48, 32\); expected \(64, 32\)"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_line(
    folder: Path, tmp_path: Path, key: str, value: object, told: str
) -> None:
    made = changed(folder, tmp_path, lambda tensors: None)
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, key: value}))
    refuse(made, told)


def test_missing_and_foreign_tensors_are_named(folder: Path, tmp_path: Path) -> None:
    refuse(changed(folder, tmp_path, lambda t: t.pop("classifier.bias")), "classifier.bias is miss")
    more = changed(folder, tmp_path, lambda t: t.update({"adapter.weight": torch.ones(1)}))
    refuse(more, "adapter.weight: is no part of a classifier")
