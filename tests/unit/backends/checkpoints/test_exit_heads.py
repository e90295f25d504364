"""A folder of exit heads, read: shortlists, traces, matrices and layers."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

from backends.checkpoints import exit_heads, models
from backends.checkpoints.exit_heads import (
    BUNDLED,
    HeadFolder,
    check_layers,
    open_folder,
    quarters,
    write_folder,
)
from backends.engine.costs.cost_model import Trace
from harness.core.errors import UserError

ROOT = Path(__file__).parents[4]


def folder() -> HeadFolder:
    tensors = {
        "token_order": torch.tensor([7, 2, 9, 0, 1, 3, 4, 5, 6, 8], dtype=torch.int32),
        "layer.2.transform": torch.tensor([[2.0, 0.0], [0.0, 3.0]]),
        "layer.4.head": torch.full((3, 2), 5.0),
        "trace.confidence": torch.tensor([[0.25, 0.5], [0.75, 1.0]], dtype=torch.float16),
        "trace.agrees": torch.tensor([[0, 1], [1, 1]], dtype=torch.uint8),
        "trace.start": torch.tensor([0, 2]),
    }
    return HeadFolder(Path("heads"), (2, 4), tensors)


def test_a_shortlist_is_the_most_frequent_tokens_by_id() -> None:
    assert folder().shortlist(3).tolist() == [2, 7, 9]
    assert folder().shortlist(10).tolist() == list(range(10))


def test_the_trace_is_what_the_heads_say() -> None:
    trained = folder().trace()
    assert trained.confidence.tolist() == [[0.25, 0.5], [0.75, 1.0]]
    assert trained.agrees.tolist() == [[0, 1], [1, 1]]
    assert (trained.layers, trained.starts.tolist()) == ((2, 4), [0, 2])


def test_a_head_is_the_final_one_times_the_transform_or_its_own() -> None:
    final = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert folder().matrix(2, final).tolist() == [[2, 3], [2, 0], [0, 3]]
    assert folder().matrix(4, final.bfloat16()).tolist() == [[5, 5]] * 3
    assert folder().matrix(4, final.bfloat16()).dtype == torch.bfloat16


def test_layers_are_brought_into_order_and_checked() -> None:
    assert check_layers([4, 2], (2, 4, 6), "here") == (2, 4)
    for layers, words in (
        ([], "here: an empty list; expected some of 2, 4, 6"),
        ([3], "here: no exit after layer 3; expected some of 2, 4, 6"),
        ([True], "no exit after layer True"),
        ([2, 2], "names a layer twice"),
    ):
        with pytest.raises(UserError, match=words):
            check_layers(layers, (1, 2, 4, 6) if layers == [True] else (2, 4, 6), "here")


def test_the_bundled_order_begins_with_what_answers_are_made_of() -> None:
    """The most frequent tokens of the trained answers: the stop token is among the first."""
    heads = open_folder(BUNDLED / "mixed", models.BUNDLED["demo"])
    stops = set(models.stop_ids(models.BUNDLED["demo"]))
    assert stops <= set(heads.shortlist(64).tolist())


@pytest.mark.parametrize("kind", exit_heads.KINDS)
def test_what_is_written_is_read_back(tmp_path: Path, kind: str) -> None:
    demo = models.BUNDLED["demo"]
    size = {"lightweight": (4, 4), "full": (6, 4)}[kind]
    weights = {layer: torch.full(size, float(layer)) for layer in (1, 3)}
    order = torch.tensor([5, 0, 1, 4, 3, 2])
    trace = Trace((1, 3), np.array([[0.25, 0.5]]), np.array([[False, True]]), np.array([0, 1]))
    told = {"workloads": ["gsm8k"]}
    about = write_folder(tmp_path, models.checksum(demo), kind, weights, order, trace, told)
    assert list(about) == [
        *("format", "checkpoint", "layers", "kind", "width", "vocabulary", "workloads")
    ]
    assert (about["layers"], about["width"], about["vocabulary"]) == ([1, 3], 4, 6)
    found = open_folder(tmp_path, demo)
    assert (found.layers, found.shortlist(2).tolist()) == ((1, 3), [0, 5])
    final = torch.eye(6, 4)
    expected = weights[3] if kind == "full" else final @ weights[3]
    assert torch.equal(found.matrix(3, final), expected)
    assert found.trace().confidence.tolist() == [[0.25, 0.5]]
    assert found.trace().agrees.tolist() == [[0, 1]]
    assert found.trace().starts.tolist() == [0, 1]


def test_the_formats_names_stand_in_one_place() -> None:
    """Who writes and who reads a file cannot come to differ."""
    places = {
        "bound_files.py": {"heads.json", "classifier.json"},
        "exit_heads.py": {"heads.safetensors", "token_order", "trace.confidence"},
        "classifier.py": {"classifier.safetensors"},
    }
    names = {name: {place} for place, own in places.items() for name in own}
    found: dict[str, set[str]] = {}
    for folder in ("harness", "backends", "workloads", "results", "reports"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and node.value in names:
                    found.setdefault(node.value, set()).add(path.name)
    assert found == names


def test_default_exits_are_the_quarters_of_the_depth() -> None:
    assert [quarters(depth) for depth in (32, 8, 4, 3, 2, 1)] == [
        *((8, 16, 24), (2, 4, 6), (1, 2, 3), (1, 2), (1,), ())
    ]
