"""Reading an exit classifier: which folder is meant, and what is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from backends.checkpoints import models
from backends.checkpoints.classifier import BUNDLED, Classifier, find_classifier, open_classifier
from harness.core.errors import UserError
from tests.support.tiny_llama import write_tiny_llama

DEMO = models.BUNDLED["demo"]
WIDTH = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "weight": torch.randn(2, WIDTH, generator=generator),
        "bias": torch.randn(2, generator=generator),
    }


def written(
    folder: Path,
    model: Path,
    about: Mapping[str, Any] | None = None,
    found: Mapping[str, Tensor] | None = None,
) -> Path:
    """A sound folder, but for entries of the report and for tensors."""
    whole = {"format": 1, "checkpoint": models.checksum(model), "width": WIDTH}
    whole |= {"layers": [1, 2, 3, 4, 5, 6, 7], "report": {"layers": {}}, "finished": True}
    folder.mkdir(exist_ok=True)
    (folder / "classifier.json").write_text(json.dumps(whole | dict(about or {})))
    save_file(tensors() | dict(found or {}), folder / "classifier.safetensors")
    return folder


def refusal(folder: Path, model: Path) -> str:
    with pytest.raises(UserError) as caught:
        open_classifier(folder, model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_sound_folder_is_read(model: Path, tmp_path: Path) -> None:
    folder = written(tmp_path / "own", model)
    assert find_classifier(str(folder), model) == folder
    found = open_classifier(folder, model)
    assert torch.equal(found.weight, tensors()["weight"])
    assert torch.equal(found.bias, tensors()["bias"])
    assert (found.path, found.layers, found.report) == (
        folder,
        (1, 2, 3, 4, 5, 6, 7),
        {"layers": {}},
    )


def test_the_difference_gives_the_same_confidence_from_one_product(
    model: Path, tmp_path: Path
) -> None:
    found: Classifier = open_classifier(written(tmp_path / "own", model), model)
    hidden = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(1)) / 8
    both = torch.softmax(hidden @ found.weight.T + found.bias, dim=-1)[:, 1]
    slope, offset = found.difference()
    assert slope.dtype == torch.float32
    torch.testing.assert_close(torch.sigmoid(hidden @ slope + offset), both)


def test_names(model: Path, tmp_path: Path) -> None:
    assert find_classifier("auto", DEMO) == BUNDLED
    with pytest.raises(UserError, match="no bundled one; train one with 'decodebench train class"):
        find_classifier("auto", model)
    with pytest.raises(UserError, match="classifier: no folder 'atuo'; did you mean 'auto'"):
        find_classifier("atuo", DEMO)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="classifier: no folder"):
        find_classifier(str(tmp_path / "file"), DEMO)
    with pytest.raises(UserError, match="is no usable path"):
        find_classifier("x" * 5000, DEMO)


def test_the_bundled_one_belongs_to_the_demo_model(model: Path) -> None:
    found = open_classifier(BUNDLED, DEMO)
    assert (found.weight.shape, found.layers) == ((2, 256), (1, 2, 3, 4, 5, 6, 7))
    assert f"trained for another checkpoint (sha256 {models.checksum(DEMO)[:12]})" in refusal(
        BUNDLED, model
    )


NAN = torch.full((2,), torch.nan)
BROKEN: list[tuple[dict[str, Any], dict[str, Tensor], str]] = [
    ({"format": 2}, {}, "classifier.json: format 2; this version reads 1"),
    ({"checkpoint": None}, {}, "classifier.json: trained for another checkpoint (sha256 None)"),
    ({"width": 128}, {}, "classifier.json: width 128; the model's is 256"),
    (
        {"layers": [1, 8]},
        {},
        "layers: no exit after layer 8; expected some of 1, 2, 3, 4, 5",
    ),
    ({"layers": []}, {}, "layers: an empty list"),
    ({"layers": 7}, {}, "expected a list of layers and a report"),
    ({"report": None}, {}, "expected a list of layers and a report"),
    ({}, {"weight": torch.zeros(2, 128)}, "weight is float32 [2, 128], not float32 [2, 256]"),
    ({}, {"weight": torch.zeros(1, 256)}, "weight is float32 [1, 256]"),
    ({}, {"bias": torch.zeros(2).half()}, "bias is float16 [2], not float32 [2]"),
    ({}, {"bias": NAN}, "bias holds NaN or infinite values"),
]


@pytest.mark.parametrize(("about", "found", "message"), BROKEN, ids=[m for *_, m in BROKEN])
def test_what_no_training_wrote_is_refused(
    model: Path, tmp_path: Path, about: dict[str, Any], found: dict[str, Tensor], message: str
) -> None:
    assert message in refusal(written(tmp_path / "own", model, about, found), model)


def test_files_that_cannot_be_read_are_named(model: Path, tmp_path: Path) -> None:
    folder = written(tmp_path / "own", model)
    save_file({"weight": torch.zeros(2, WIDTH)}, folder / "classifier.safetensors")
    assert "classifier.safetensors: not readable: 'bias'" in refusal(folder, model)
    (folder / "classifier.safetensors").write_bytes(b"nothing")
    assert "classifier.safetensors: not readable" in refusal(folder, model)
    (folder / "classifier.safetensors").unlink()
    assert "classifier.safetensors: not readable" in refusal(folder, model)
    (folder / "classifier.json").write_text("{}")
    assert "classifier.json: not readable: 'format'" in refusal(folder, model)
    (folder / "classifier.json").write_text("[1]")
    assert "classifier.json: not readable" in refusal(folder, model)
    (folder / "classifier.json").write_text("{")
    assert "classifier.json: not readable" in refusal(folder, model)
    (folder / "classifier.json").unlink()
    assert "classifier.json: not readable" in refusal(folder, model)
