"""Checkpoints: which folder a name means, what makes one unusable, what pins its content."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.checkpoints import models
from harness.core.errors import UserError
from harness.core.nouns import Model
from tests.support.tiny_llama import CONFIG, EOS_ID, write_tiny_llama


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, with a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(original, tmp_path / "model"))


def refusal(name: str | Path, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        models.resolve(Model(str(name), **more))
    message = str(caught.value)
    assert "\n" not in message
    return message


def edit_config(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))


def test_local_folder(folder: Path) -> None:
    assert models.resolve(Model(str(folder))) == folder
    assert models.resolve(Model(str(folder / ".." / "model"))) == folder


Spoil = Callable[[Path], object]
SPOILED: list[tuple[str, Spoil]] = [
    ("config.json is missing", lambda f: (f / "config.json").unlink()),
    (
        "an adapter of a/b: merge it into its base model (peft's merge_and_unload), or name that",
        lambda f: (
            (f / "config.json")
            .rename(f / "adapter_config.json")
            .write_text('{"base_model_name_or_path": "a/b"}')
        ),
    ),
    ("no *.safetensors", lambda f: (f / "model.safetensors").unlink()),
    (
        "only pytorch_model.bin: pickled weights are not read",
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
    ),
    ("cut short", lambda f: (f / "model.safetensors").write_bytes(b"version https://git-lfs")),
    ("cut short", lambda f: (f / "model.safetensors").write_bytes(b"")),
    (
        "model-2.safetensors: missing, though the index names it",
        lambda f: (f / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}})
        ),
    ),
    ("not readable as JSON", lambda f: (f / "config.json").write_text("{")),
    (
        "generation_config.json: not readable as JSON",
        lambda f: (f / "generation_config.json").write_text("{"),
    ),
    (
        "weight_map: expected a mapping",
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": ["a"]}'),
    ),
    ("cut short or spoilt", lambda f: os.truncate(f / "model.safetensors", 100_000)),
    (
        "its header is broken",
        lambda f: (f / "model.safetensors").write_bytes(b"\x04" + b"\0" * 7 + b"{{{{" + b"\0" * 99),
    ),
    ("expected a JSON object", lambda f: (f / "config.json").write_text("[]")),
]


@pytest.mark.parametrize(("message", "spoil"), SPOILED, ids=[message for message, _ in SPOILED])
def test_unusable_folder_says_what_is_wrong(folder: Path, message: str, spoil: Spoil) -> None:
    spoil(folder)
    assert message in refusal(folder)


def test_any_architecture_is_found_and_named(folder: Path) -> None:
    """What a backend can run is the backend's to say."""
    edit_config(folder, architectures=["BertForSequenceClassification"])
    (folder / "tokenizer.json").unlink()
    assert models.resolve(Model(str(folder))) == folder
    assert models.architecture(folder) == "BertForSequenceClassification"
    edit_config(folder, architectures=[])
    assert models.architecture(folder) is None


def test_text_needs_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json is missing"):
        models.load_tokenizer(folder)


def test_a_text_longer_than_the_tokenizer_s_own_limit_is_no_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import tokenization_utils_base as transformers_own

    path = folder / "tokenizer_config.json"
    about = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(about | {"model_max_length": 2}))
    told: list[str] = []
    monkeypatch.setattr(transformers_own.logger, "warning", told.append)
    assert len(models.load_tokenizer(folder).encode("return x , y . z")) > 2
    assert told == []


def test_a_served_model_needs_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert models.resolve(Model(str(folder)), weights=False) == folder


def test_names_that_lead_nowhere(folder: Path) -> None:
    assert "did you mean 'demo'?" in refusal("dem0")
    assert "expected a folder" in refusal(folder / "config.json")


def test_hub_out_of_reach_is_one_line(tmp_path: Path) -> None:
    """In a process of its own: the hub's client reads its environment once."""
    program = (
        "from backends.checkpoints import models\nfrom harness.core.errors import UserError\n"
        "from harness.core.nouns import Model\n"
        "try:\n models.resolve(Model('nobody/nothing'))\n"
        "except UserError as error:\n print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": "."},
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("model 'nobody/nothing': no such folder here, and the hub cannot")
    assert run.stdout.count("\n") == 1


@pytest.mark.parametrize(
    "name",
    [
        "generation_config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
    ],
)
def test_checksum_pins_whatever_decides_prompts_and_ends(folder: Path, name: str) -> None:
    """Stop tokens and chat templates decide answers as much as weights do."""
    before = models.checksum(folder)
    (folder / name).write_text('{"eos_token_id": 7}')
    there = models.checksum(folder)
    (folder / name).write_text('{"eos_token_id": 77}')
    assert len({before, there, models.checksum(folder)}) == 3


def test_checksum_pins_weights_config_and_tokenizer(folder: Path) -> None:
    first = models.checksum(folder)
    assert first == models.checksum(folder)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        path = folder / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert models.checksum(folder) != first, name
        path.write_bytes(content)
        assert models.checksum(folder) == first, name
    (folder / "README.md").write_text("words")
    assert models.checksum(folder) == first


def test_checksum_reads_an_unchanged_file_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = models.checksum(folder)

    def digest(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("backends.checkpoints.digests._digest", digest)
    assert models.checksum(folder) == first


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', "\x00"])
def test_a_broken_digest_cache_is_only_slower(folder: Path, tmp_path: Path, content: str) -> None:
    first = models.checksum(folder)
    cache = tmp_path / "cache" / "decodebench" / "checked.json"
    assert cache.is_file()
    cache.write_text(content)
    assert models.checksum(folder) == first


def test_no_home_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a user id that has neither $HOME nor an entry in passwd."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)
    monkeypatch.chdir(folder)
    models.checksum(folder)
    assert not (folder / "~").exists()


def test_a_home_of_nobody_and_a_path_too_long() -> None:
    assert "is no usable path" in refusal("~nobody-here/model")
    assert "File name too long" in refusal("m" * 5000)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", '{"model": {}}', "tokenizer.json: "),
        ("tokenizer_config.json", '{"chat_template": "{% for"}', "its chat template cannot"),
        (
            "tokenizer_config.json",
            '{"chat_template": "{{ raise_exception(\'no users\') }}"}',
            "its chat template cannot take a user's message: no users",
        ),
    ],
)
def test_a_broken_tokenizer_is_one_line(
    folder: Path, file: str, content: str, message: str
) -> None:
    (folder / file).write_text(content)
    with pytest.raises(UserError) as caught:
        models.load_tokenizer(folder)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_digest_cache_that_cannot_be_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = models.checksum(folder)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert models.checksum(folder) == first


def test_stop_ids_come_from_every_source(folder: Path) -> None:
    assert models.stop_ids(folder) == (EOS_ID,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 5]}')
    assert models.stop_ids(folder, SimpleNamespace(eos_token_id=9)) == (EOS_ID, 5, 7, 9)
    edit_config(folder, eos_token_id=None)
    (folder / "generation_config.json").unlink()
    assert models.stop_ids(folder, SimpleNamespace(eos_token_id=None)) == ()
