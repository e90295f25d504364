"""Shapes in the user's cache: made once, whole or not at all, and never too large."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models, weight_files
from backends.checkpoints.shapes import drafts, folder, making
from backends.checkpoints.shapes.ladder import LADDER
from harness.core.errors import UserError
from harness.core.files import cache_folder
from harness.core.nouns import Model
from tests.support.small_shapes import small_shape


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "decodebench" / "shapes"


def refusal(model: Model, cache_gib: int = 40) -> str:
    with pytest.raises(UserError) as caught:
        models.resolve(model, cache_gib=cache_gib)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_shape_is_a_checkpoint_that_is_made_once(tmp_path: Path, cache: Path) -> None:
    model = small_shape(tmp_path / "mine")
    found = models.resolve(model)
    assert found.parent == cache
    assert found.name.startswith("mine-config-")
    state = (found / "model.safetensors").stat()
    assert models.resolve(model) == found
    assert (found / "model.safetensors").stat().st_mtime_ns == state.st_mtime_ns
    assert models.resolve(small_shape(tmp_path / "mine", layers=2)) != found
    assert models.resolve(small_shape(tmp_path / "mine", layers=4)) == found, "all of them"


def test_answers_never_end_by_a_token_of_their_own(tmp_path: Path) -> None:
    found = models.resolve(small_shape(tmp_path))
    tokenizer = models.load_tokenizer(found)
    assert models.stop_ids(found, tokenizer) == ()
    demo = models.load_tokenizer(models.BUNDLED["demo"])
    messages = [{"role": "user", "content": "How many?"}]
    made = [t.apply_chat_template(messages, add_generation_prompt=True) for t in (tokenizer, demo)]
    assert made[0] == made[1]
    assert tokenizer.decode([5, 1400, 31_999]) == tokenizer.decode([5])


def test_the_checksum_is_known_from_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = models.resolve(small_shape(tmp_path))

    def read(path: Path) -> str:
        raise AssertionError(f"{path} is read again")

    with monkeypatch.context() as patched:
        patched.setattr(weight_files, "digest", read)
        told = models.checksum(found)
    (cache_folder() / "checked.json").unlink()
    assert models.checksum(found) == told


def test_what_cannot_be_a_shape_is_one_line(tmp_path: Path) -> None:
    assert "did you mean '0.5b'?" in refusal(Model("0.5", shape=True))
    assert "no such file, and not a name" in refusal(Model(str(tmp_path / "c.json"), shape=True))
    assert "found a folder" in refusal(Model(str(tmp_path), shape=True))
    (tmp_path / "broken.json").write_text("{")
    assert "not readable as JSON" in refusal(Model(str(tmp_path / "broken.json"), shape=True))
    (tmp_path / "nan.json").write_text(json.dumps({**LADDER["0.1b"], "rope_theta": float("nan")}))
    assert "expected finite numbers" in refusal(Model(str(tmp_path / "nan.json"), shape=True))
    assert "layers: 13 of 12; expected 1 to 12" in refusal(Model("0.1b", shape=True, layers=13))
    assert "layers: 0 of 12" in refusal(Model("0.1b", shape=True, layers=0))
    assert "vocab_size: is 64; expected at least 1280" in refusal(
        small_shape(tmp_path, vocab_size=64)
    )


def test_what_the_cache_or_the_disk_has_no_room_for_is_refused_before_anything_is_written(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Model("llama-3.1-8b", shape=True)
    line = refusal(large, cache_gib=10)
    assert "need 14.96 GiB" in line
    assert "may take 10 GiB and holds 0.00" in line
    assert "limits: {cache_gib: N}" in line
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**30))
    assert "on a disk with 1.00 GiB left" in refusal(large)
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_a_shape_that_drafts_may_have_what_the_experiment_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "GIB", 850_000)
    found = models.resolve(small_shape(tmp_path / "a"), cache_gib=2)
    assert drafts.draft_shape("x", None, found).label == "the model's first 1 layers"
    models.resolve(small_shape(tmp_path / "a"))
    with pytest.raises(UserError, match="may take 2 GiB"):
        drafts.draft_shape("x", None, found).generated()
    models.resolve(small_shape(tmp_path / "a"), cache_gib=9)
    made = drafts.draft_shape("x", None, found).generated()
    (made / "config.json").unlink()
    with pytest.raises(UserError, match=rf"missing; .* 'decodebench cache clear {made.name}' has"):
        drafts.draft_shape("x", None, found).generated()


def test_what_is_there_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "GIB", 850_000)
    first, second = small_shape(tmp_path / "a"), small_shape(tmp_path / "b")
    found = models.resolve(first, cache_gib=2)
    assert "may take 2 GiB and holds 0.6" in refusal(second, cache_gib=2)
    assert models.resolve(first, cache_gib=1) == found, "no new room needed"
    shutil.rmtree(found)
    assert models.resolve(second, cache_gib=2).is_dir()


def test_a_cache_that_cannot_be_written_to_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "set XDG_CACHE_HOME to a folder that can be written to" in refusal(small_shape(tmp_path))


def test_a_disk_that_fills_up_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> dict[str, str]:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(folder, "write_weights", full)
        with pytest.raises(OSError, match="No space left") as caught:
            models.resolve(small_shape(tmp_path))
    assert str(caught.value.filename).startswith(str(cache / tmp_path.name))
    assert [path.name for path in cache.iterdir()] == [".lock"]
    assert models.resolve(small_shape(tmp_path)).is_dir()


CHILD = """
import sys, time
from pathlib import Path
from backends.checkpoints import models
from backends.checkpoints.shapes import folder
from harness.core.nouns import Model
stall, real = Path(sys.argv[2]), folder.write_weights
def slow(directory, *rest):
    found = real(directory, *rest)
    print("written", flush=True)
    while not stall.exists():
        time.sleep(0.01)
    return found
folder.write_weights = slow
print(models.resolve(Model(sys.argv[1], shape=True)), flush=True)
"""


def start(model: Model, go_on: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, model.name, str(go_on)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[5],
    )


def test_a_killed_one_leaves_nothing_that_is_taken_for_whole(tmp_path: Path, cache: Path) -> None:
    model = small_shape(tmp_path)
    child = start(model, tmp_path / "never")
    assert child.stdout is not None
    assert child.stdout.readline() == "written\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    (left,) = [path for path in cache.iterdir() if path.name != ".lock"]
    assert left.name.startswith(".")
    found = models.resolve(model)
    assert (found / "model.safetensors").is_file()
    assert sorted(path.name for path in cache.iterdir()) == sorted([".lock", found.name])


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    model, go_on = small_shape(tmp_path), tmp_path / "go on"
    first = start(model, go_on)
    assert first.stdout is not None
    assert first.stdout.readline() == "written\n"
    second = start(model, go_on)
    time.sleep(0.1)
    assert second.poll() is None
    go_on.touch()
    told = [first.communicate()[0], second.communicate()[0]]
    assert told[0] == told[1], "the second found what the first had made, and wrote nothing"
    assert json.loads(Path(told[0].strip(), "config.json").read_text())["hidden_size"] == 64


def test_larger_ones_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models.resolve(small_shape(tmp_path))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(making, "TOLD_FROM_BYTES", 0)
    models.resolve(small_shape(tmp_path, layers=2))
    line = capsys.readouterr().err
    assert line.startswith(f"shape {tmp_path / 'config.json'}, 2 layers: 0.00 GiB of random")
    assert line.count("\n") == 1
