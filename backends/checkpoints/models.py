"""Which checkpoint a model name means, and what pins its content.

A checkpoint is a folder in Hugging Face format: ``config.json``, ``tokenizer.json`` and safetensors
weights. Nothing in it is ever executed: no pickles, no remote code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from backends.checkpoints import weight_files
from harness.core.errors import UserError, nearest
from harness.core.files import MIB, read_text, user_path, write_atomic
from harness.core.nouns import Model

DEMO = Path(__file__).parents[1] / "demo"
BUNDLED = {"demo": DEMO / "target", "demo-draft": DEMO / "draft"}
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
HUB_FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja"]
HUB_TIMEOUT_S = 4.0
MAX_JSON_BYTES = 64 * MIB
HASHED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)


def resolve(model: Model, *, weights: bool = True) -> Path:
    """The folder that holds `model`: a bundled name, a local path, or a hub id (downloaded).

    With `weights` False only the configuration and the tokenizer have to be there, which is all
    that a served model needs here. Raises `UserError` when the folder is missing or incomplete and
    when the hub cannot be reached. Whether a backend can run what it holds is the backend's to say.
    """
    directory = _locate(model, weights)
    _check_files(directory, weights)
    stop_ids(directory)  # reads the generation's configuration, which no other check does
    return directory


def catalogue() -> list[dict[str, Any]]:
    """The bundled models: name, layers, width, vocabulary and whether the files are there."""
    found = []
    for name, directory in sorted(BUNDLED.items()):
        present = (directory / "config.json").is_file()
        config = read_config(directory) if present else {}
        found.append(
            {
                "name": name,
                "present": present,
                "layers": config.get("num_hidden_layers"),
                "width": config.get("hidden_size"),
                "vocabulary": config.get("vocab_size"),
            }
        )
    return found


def architecture(directory: Path) -> str | None:
    """The name that the checkpoint's ``config.json`` gives its architecture; None: it gives none.
    Raises `UserError` when it is not a JSON object."""
    named = read_config(directory).get("architectures")
    return str(named[0]) if isinstance(named, list) and named else None


def read_config(directory: Path) -> dict[str, Any]:
    """The checkpoint's ``config.json``. Raises `UserError` when it is not a JSON object."""
    return _read_json(directory / "config.json")


def load_tokenizer(directory: Path) -> Any:
    """The checkpoint's tokenizer, as transformers' fast tokenizer. Never runs its code. Raises
    `UserError` where there is none that can be used."""
    if not (directory / "tokenizer.json").is_file():
        raise UserError(f"model folder {directory}: tokenizer.json is missing")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # the tokenizers library raises a bare Exception
        raise UserError(f"{directory / 'tokenizer.json'}: {one_line(error)}") from None
    _check_chat_template(directory, tokenizer)
    return tokenizer


def _check_chat_template(directory: Path, tokenizer: Any) -> None:
    if not tokenizer.chat_template:
        return
    messages = [{"role": "user", "content": "Hello"}]
    try:
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template may raise anything
        raise UserError(
            f"model folder {directory}: its chat template cannot take a user's message: "
            f"{one_line(error)}"
        ) from None


def stop_ids(directory: Path, tokenizer: Any = None) -> tuple[int, ...]:
    """The token ids that end an answer, sorted: those of generation_config.json, config.json and,
    where given, the tokenizer."""
    found: list[Any] = [getattr(tokenizer, "eos_token_id", None)]
    for name in ("generation_config.json", "config.json"):
        if (directory / name).is_file():
            eos = _read_json(directory / name).get("eos_token_id")
            found += eos if isinstance(eos, list) else [eos]
    return tuple(sorted({token for token in found if isinstance(token, int)}))


def checksum(directory: Path) -> str:
    """sha256 over configuration, tokenizer and weights: what decides a model's answers.

    Each file's digest is remembered under its path, size and time of change, so that a large
    checkpoint is read once and not at every run. Raises `UserError` for weights that hold NaN or
    infinity.
    """
    whole = hashlib.sha256()
    files = [directory / name for name in HASHED if (directory / name).is_file()]
    cache = _DigestCache()
    for path in sorted(files + list(directory.glob("*.safetensors"))):
        whole.update(f"{path.name} {cache.digest(path)}\n".encode())
    cache.save()
    return whole.hexdigest()


class _DigestCache:
    """File digests by path, size and mtime, in the user's cache folder; losing it is harmless."""

    def __init__(self) -> None:
        try:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError:  # no home: nothing can be below a device, and that is no error
            base = Path(os.devnull)
        self._path = base / "decodebench" / "checked.json"
        self._known: dict[str, str] = {}
        self._new: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._known = dict(json.loads(self._path.read_text()).items())

    def digest(self, path: Path) -> str:
        real = path.resolve()
        stat = real.stat()
        key = f"{real} {stat.st_size} {stat.st_mtime_ns}"
        if not isinstance(self._known.get(key), str):
            self._known[key] = self._new[key] = _digest(real)
        return self._known[key]

    def save(self) -> None:
        if not self._new:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(self._known).encode())


def _digest(path: Path) -> str:
    if path.suffix == ".safetensors":
        return weight_files.digest(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def one_line(error: object) -> str:
    """An error's first line that says something, cut to 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _locate(model: Model, weights: bool) -> Path:
    if model.name in BUNDLED:
        return BUNDLED[model.name]
    path = user_path(model.name, "model")
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise UserError(
            f"model '{model.name}': expected a folder in Hugging Face format, not a file"
        )
    if not HUB_ID.fullmatch(model.name):
        raise UserError(
            f"model '{model.name}': no such folder, and neither a hub id (owner/name) nor a "
            f"bundled name; {nearest(model.name, BUNDLED)}"
        )
    return _download(model, weights)


def _download(model: Model, weights: bool) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"model '{model.name}'"
    patterns = HUB_FILES if weights else [p for p in HUB_FILES if p != "*.safetensors"]
    unreached: Exception | None = None
    try:
        # one short question first: without an answer the library asks again for minutes
        HfApi().model_info(model.name, revision=model.revision, timeout=HUB_TIMEOUT_S)
    except HfHubHTTPError:
        pass  # an answer: what it means is said below
    except Exception as error:  # the client library's own errors, whichever library that is
        unreached = error
    try:
        found = snapshot_download(
            model.name,
            revision=model.revision,
            allow_patterns=patterns,
            local_files_only=unreached is not None,
        )
        return Path(found)
    except GatedRepoError:
        raise UserError(f"{where}: gated on the hub; log in with 'hf auth login'") from None
    except RevisionNotFoundError:
        raise UserError(f"{where}: the hub has no revision '{model.revision}'") from None
    except RepositoryNotFoundError:
        raise UserError(f"{where}: no such folder here and no such model on the hub") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise UserError(
            f"{where}: no such folder here, and the hub cannot be reached "
            f"({one_line(unreached or error)})"
        ) from None


def _check_files(directory: Path, weights: bool) -> None:
    if not (directory / "config.json").is_file():
        raise UserError(f"model folder {directory}: config.json is missing")
    if not weights:
        return
    index = directory / "model.safetensors.index.json"
    shards = _shards(index) if index.is_file() else set()
    for name in sorted(shards | {path.name for path in directory.glob("*.safetensors")}):
        weight_files.check_whole(directory / name)
        shards.add(name)
    if shards:
        return
    pickles = [*directory.glob("*.bin"), *directory.glob("*.pt"), *directory.glob("*.pth")]
    only = f" (only {pickles[0].name}: pickled weights are not read)" if pickles else ""
    raise UserError(f"model folder {directory}: no *.safetensors{only}")


def _shards(index: Path) -> set[str]:
    named = _read_json(index).get("weight_map", {})
    if not isinstance(named, dict) or not all(isinstance(n, str) for n in named.values()):
        raise UserError(f"{index}: weight_map: expected a mapping of tensors to files")
    return set(named.values())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_text(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON: {one_line(error)}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(data).__name__}")
    return data
