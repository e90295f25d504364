"""A dry run makes every check that comes before an engine is loaded, and writes no results."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.checkpoints import models
from harness.cli import run as running
from harness.cli import wiring
from harness.core.errors import UserError
from harness.core.files import only_writer
from harness.experiment.config import parse_experiment
from harness.measure.sweep import by_backend
from results.store.folder import Store
from tests.support.small_shapes import small_shape
from tests.unit.harness.cli.test_run import record


def dry_run(folder: Path, out: Path | None = None, **changes: Any) -> None:
    content: dict[str, Any] = {
        "name": "tiny",
        "model": "demo",
        "backends": ["scripted"],
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 2,
    }
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(content | changes))
    before = sorted(folder.rglob("*"))
    target = folder / "run" if out is None else out
    try:
        running.run_experiment(file, out=target, only=None, fresh=False, dry_run=True)
    finally:
        assert sorted(folder.rglob("*")) == before


def refusal(folder: Path, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        dry_run(folder, **changes)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_good_input_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry_run(tmp_path, backends=["adadecode", "autoregressive", "scripted"])
    assert "3 trials of 2 requests; nothing was run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (
            {"name": "adadecode", "exit_layers": [99]},
            "option 'exit_layers': no exit after layer 99; expected some of 1, 2, 3, 4, 5, 6, 7",
        ),
        (
            {"name": "adadecode", "heads": "original", "exit_layers": [8]},
            "option 'exit_layers': no exit after layer 8; expected some of 1, 2",
        ),
        (
            {"name": "adadecode", "heads": "original", "shortlist": 5},
            "option 'shortlist' needs trained heads",
        ),
        ({"name": "adadecode", "shortlist": 9999}, "9999 is more than the vocabulary of 1280"),
        ({"name": "adadecode", "heads": "gsmk8"}, "heads: no folder 'gsmk8'; did you mean 'gsm8k'"),
        (
            {"name": "autoregressive", "max_model_len": 9000},
            "max_model_len 9000 exceeds the model's 4096 positions",
        ),
    ],
)
def test_options_that_do_not_fit_the_model(
    tmp_path: Path, backend: dict[str, Any], message: str
) -> None:
    line = refusal(tmp_path, backends=[backend])
    assert message in line
    assert line.count(backend["name"]) == 1, "named once"


def test_which_of_several_engines_it_was_is_said_once(tmp_path: Path) -> None:
    line = refusal(tmp_path, backends=[{"name": "adadecode", "exit_layers": [[2], [99]]}])
    assert line.count("adadecode") == 1
    assert line.endswith('(with {"exit_layers":[99]})')


def test_an_engine_without_options_has_none_to_tell(tmp_path: Path) -> None:
    line = refusal(
        tmp_path, model=["demo", "demo-sentiment"], backends=["classifier"], workloads=["sentiment"]
    )
    assert line.startswith("backend 'classifier': ")
    assert "architecture LlamaForCausalLM" in line
    assert "(with" not in line


def test_a_refusal_names_its_backend_once() -> None:
    named = "backend 'adadecode': option 'shortlist' needs trained heads"
    assert by_backend("adadecode", named) == named
    assert by_backend("adadecode", "heads: no folder 'x'") == "adadecode: heads: no folder 'x'"


def test_other_heads_under_the_same_name_are_checked_again(tmp_path: Path) -> None:
    heads = tmp_path / "heads"
    shutil.copytree(models.DEMO / "heads" / "mixed", heads)
    backend = {"name": "adadecode", "heads": str(heads)}
    dry_run(tmp_path, backends=[backend])
    (heads / "heads.safetensors").write_bytes(b"spoilt")
    assert "heads.safetensors: not readable" in refusal(tmp_path, backends=[backend])


def test_a_tokenizer_that_cannot_be_read(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(models.BUNDLED["demo"], model)
    (model / "tokenizer.json").write_text("{")
    assert "tokenizer.json: " in refusal(tmp_path, model=str(model))


def test_a_folder_in_use_a_foreign_record_and_a_file_in_the_way(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    store.write(record("a"))
    store.write_experiment("name: x")
    dry_run(tmp_path)
    with only_writer(store.path):
        assert "another run is writing into it" in refusal(tmp_path)
    path = store.trials_folder / "a.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    assert "schema version 7" in refusal(tmp_path)
    (tmp_path / "file").touch()
    line = refusal(tmp_path, out=tmp_path / "file" / "below" / "run")
    assert line.endswith("run: Not a directory; name another --out")


def test_a_server_that_nobody_reaches_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        dry_run(tmp_path, backends=[{"name": "http", "base_url": url}])
        assert capsys.readouterr().err == ""
    dry_run(tmp_path, backends=[{"name": "http", "base_url": url, "timeout_s": [1.0, 2.0]}])
    assert capsys.readouterr().err == (
        f"warning: {url}: Connection refused; a run would fail now\n"
    )


@contextlib.contextmanager
def only_readable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody may write into the folder: the tests may run as root, who may."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != folder)
        yield


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with only_readable(tmp_path, monkeypatch):
        line = refusal(tmp_path, out=tmp_path / "a" / "b")
    assert line.endswith("b: Permission denied; name another --out")


def test_a_second_dry_run_makes_no_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shape drafts for this one: the first of its own layers do."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small_shape(tmp_path / "small")
    shapes = tmp_path / "cache" / "decodebench" / "shapes"
    changes: dict[str, Any] = {
        "model": {"shape": str(tmp_path / "small" / "config.json")},
        "backends": [{"name": "speculative", "replay": "demo", "drafts": 12}],
    }
    made = []
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        dry_run(tmp_path / run, **changes)
        made.append(sorted(path.name for path in shapes.iterdir() if path.is_dir()))
    assert made[0] == made[1]
    names = sorted(name.rpartition("-")[0] for name in made[0])
    assert names == ["small-config", "small-config-1-layers"]


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("temperature", "it belongs under 'sampling'"),
        ("top_p", "it belongs under 'sampling'"),
        ("tpot_ms", "it belongs under 'slo'"),
        ("rate", "it belongs to an entry of 'load'"),
        ("rows", "it belongs to an entry of 'workloads'"),
        ("exit_layers", "it is an option of the backend 'adadecode'"),
    ],
)
def test_a_key_at_the_wrong_place_is_told_the_right_one(key: str, place: str) -> None:
    named = {"name": "a", "model": "demo", "backends": ["scripted"], "workloads": ["gsm8k"]}
    content = named | {"load": [{"kind": "closed", "concurrency": 1}], key: 0.5}
    with pytest.raises(UserError) as caught:
        parse_experiment(content, "f.yaml", wiring.known())
    assert str(caught.value) == f"f.yaml: {key}: unknown key; {place}"


def test_drawings_are_no_sentences_and_sentences_no_drawings(tmp_path: Path) -> None:
    """By what the network reads: a checkpoint of one's own takes what it was made for."""
    own = shutil.copytree(models.BUNDLED["demo-sentiment"], tmp_path / "own")
    labels: dict[str, Any] = {"backends": ["classifier"], "workloads": ["sentiment"]}
    dry_run(tmp_path, **labels, model=str(own))
    told = refusal(tmp_path, **labels | {"workloads": ["shapes"]}, model=str(own))
    line = f"model '{own}' takes sentences; workload 'shapes' has drawings; expected"
    assert told == f"{line} model 'demo-shapes' or workload 'sentiment'"
    told = refusal(tmp_path, **labels, model="demo-shapes")
    assert "'demo-shapes' takes drawings; workload 'sentiment' has sentences; expected" in told
    both = {"model": [str(own), "demo-shapes"], "workloads": ["sentiment", "shapes"]}
    told = refusal(tmp_path, **labels | both)
    assert told.endswith("workload 'shapes' has drawings; run these models apart")
