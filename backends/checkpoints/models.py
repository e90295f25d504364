"""Which checkpoint a model name means, and what pins its content.

A checkpoint is a folder in Hugging Face format: ``config.json``, ``tokenizer.json`` and safetensors
weights. Nothing in it is ever executed: no pickles, no remote code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.checkpoints import weight_files
from backends.checkpoints.digests import FileDigests
from backends.checkpoints.tokens.plain import read_plain
from harness.core.errors import UserError, nearest
from harness.core.files import MIB, read_text, user_path
from harness.core.nouns import Model

DEMO = Path(__file__).parents[1] / "demo"
CLASSIFIERS = Path(__file__).parents[1] / "classifiers" / "bundled"
BUNDLED = {
    "demo": DEMO / "target",
    "demo-draft": DEMO / "draft",
    "demo-sentiment": CLASSIFIERS / "sentiment",
    "demo-shapes": CLASSIFIERS / "shapes",
}
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja"]
HUB_TIMEOUT_S = 4.0
MAX_JSON_BYTES = 64 * MIB
CACHE_GIB = 40
"""How large the folder of generated shapes may grow, where no experiment says otherwise."""
_given_gib = CACHE_GIB
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


def shapes_gib() -> int:
    """What generated shapes may take in the user's cache, as this process was told last."""
    return _given_gib


def resolve(model: Model, *, weights: bool = True, cache_gib: int | None = None) -> Path:
    """The folder that holds `model`: a bundled name, a local path, a hub id (downloaded), or a
    shape, whose random weights are generated into the user's cache, which may grow to `cache_gib`:
    from then on in this process, for shapes that draft too.

    With `weights` False only the configuration and the tokenizer have to be there, which is all
    that a served model needs here. Raises `UserError` when the folder is missing or incomplete,
    when the hub cannot be reached, and for a shape that cannot be made. Whether a backend can run
    what it holds is the backend's to say.
    """
    global _given_gib
    if cache_gib is not None:
        _given_gib = cache_gib
    directory = _shape(model) if model.shape else _locate(model, weights)
    check_files(directory, weights)
    stop_ids(directory)  # reads the generation's configuration, which no other check does
    return directory


def is_demo(directory: Path) -> bool:
    """Whether it is the bundled demo model, for which heads, calibrations and a draft model are
    bundled too."""
    return directory.resolve() == BUNDLED["demo"].resolve()


def architecture(directory: Path) -> str | None:
    """The name that the checkpoint's ``config.json`` gives its architecture; None: it gives none.
    Raises `UserError` when it is not a JSON object."""
    named = read_config(directory).get("architectures")
    return str(named[0]) if isinstance(named, list) and named else None


def read_config(directory: Path) -> dict[str, Any]:
    """The checkpoint's ``config.json``. Raises `UserError` when it is not a JSON object."""
    return read_json(directory / "config.json")


def whole_number(
    config: Mapping[str, Any], where: str | Path, key: str, default: int | None = None
) -> int:
    """A size in a configuration. Raises `UserError`, which begins with `where`, for one that is
    missing, without a `default`, or none."""
    value = default if config.get(key) is None else config[key]
    if type(value) is not int or value < 1:
        found = "missing" if value is None else f"is {value!r:.40}"
        raise UserError(f"{where}: {key}: {found}; expected a positive whole number")
    return value


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
    # transformers warns of longer texts, which is for the model's positions to say
    tokenizer.model_max_length = sys.maxsize
    return tokenizer


def prompt_tokenizer(directory: Path) -> Any:
    """What makes prompts and reads answers of the checkpoint's model: `load_tokenizer` or, where
    the files let it, a tokenizer that does the same without importing transformers. Raises
    `UserError` where there is none that can be used."""
    tokenizer = read_plain(directory)
    if tokenizer is None:
        return load_tokenizer(directory)
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
            eos = read_json(directory / name).get("eos_token_id")
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
    cache = FileDigests()
    for path in sorted(files + list(directory.glob("*.safetensors"))):
        whole.update(f"{path.name} {cache.digest(path)}\n".encode())
    cache.save()
    return whole.hexdigest()


def one_line(error: object) -> str:
    """An error's first line that says something, and the next where it ends in a colon; cut to 300
    characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return (" ".join(told) or type(error).__name__)[:300]


def _shape(model: Model) -> Path:
    from backends.checkpoints.shapes import folder

    return folder.generated(model)


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
    from huggingface_hub import HfApi, errors, snapshot_download

    where = f"model '{model.name}'"
    patterns = HUB_FILES if weights else [p for p in HUB_FILES if p != "*.safetensors"]
    unreached: Exception | None = None
    try:
        # one short question first: without an answer the library asks again for minutes
        HfApi().model_info(model.name, revision=model.revision, timeout=HUB_TIMEOUT_S)
    except errors.HfHubHTTPError:
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
    except errors.GatedRepoError:
        raise UserError(f"{where}: gated on the hub; log in with 'hf auth login'") from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{where}: the hub has no revision '{model.revision}'") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{where}: no such folder here and no such model on the hub") from None
    except errors.HFValidationError as error:
        raise UserError(
            f"{where}: no such folder here, and no id of the hub's ({one_line(error)})"
        ) from None
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
        raise UserError(
            f"{where}: no such folder here, and the hub cannot be reached "
            f"({one_line(unreached or error)})"
        ) from None


def check_files(directory: Path, weights: bool = True) -> None:
    """Raise `UserError` for a checkpoint folder that lacks its configuration, or one of whose
    weights' files is missing or cut short."""
    if not (directory / "config.json").is_file():
        told = "config.json is missing"
        if (adapter := directory / "adapter_config.json").is_file():
            base = read_json(adapter).get("base_model_name_or_path")
            told = f"an adapter of {base}: merge it into its base model (peft's merge_and_unload)"
            told += ", or name that"
        raise UserError(f"model folder {directory}: {told}")
    if not weights:
        return
    shards = indexed(directory)
    for name in sorted(shards | {path.name for path in directory.glob("*.safetensors")}):
        weight_files.check_whole(directory / name)
        shards.add(name)
    if shards:
        return
    pickles = [*directory.glob("*.bin"), *directory.glob("*.pt"), *directory.glob("*.pth")]
    only = f" (only {pickles[0].name}: pickled weights are not read)" if pickles else ""
    raise UserError(f"model folder {directory}: no *.safetensors{only}")


def weight_paths(directory: Path) -> list[Path]:
    """The files of a folder's weights: those that its index names, without one all. Raises
    `UserError` for an index that is none."""
    named = sorted(directory / name for name in indexed(directory))
    return named or sorted(directory.glob("*.safetensors"))


def indexed(directory: Path) -> set[str]:
    """The files that the index of a folder's weights names; none without one. Raises `UserError`
    for an index that is none."""
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        return set()
    named = read_json(index).get("weight_map", {})
    if not isinstance(named, dict) or not all(isinstance(n, str) for n in named.values()):
        raise UserError(f"{index}: weight_map: expected a mapping of tensors to files")
    return set(named.values())


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object. Raises `UserError` when it is none."""
    try:
        data = json.loads(read_text(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON: {one_line(error)}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(data).__name__}")
    return data
