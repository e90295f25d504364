"""Checkpoints of small Llamas: Hugging Face's files for use, and the state of a training run."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from backends.checkpoints.bound_files import replacing_tensors
from backends.checkpoints.models import one_line, read_config
from backends.training.rows.tokenizer import BEGIN, END, MAX_LENGTH, PAD
from backends.training.small_models.llama import Llama, LlamaShape
from harness.core.errors import UserError, of_memory
from harness.core.files import write_atomic


def hugging_face_config(shape: LlamaShape) -> dict[str, Any]:
    """Return the `config.json` of a model of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_LENGTH,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rope_theta,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "torch_dtype": "bfloat16",
    }


def shape_of(config: dict[str, Any]) -> LlamaShape:
    """Return the shape that a `config.json` written here describes."""
    return LlamaShape(
        vocabulary=config["vocab_size"],
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        feed_forward=config["intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        rope_theta=config["rope_theta"],
        epsilon=config["rms_norm_eps"],
    )


def export(model: Llama, tokenizer_folder: Path, out: Path) -> None:
    """Write the model in bfloat16 with its tokenizer as a Hugging Face checkpoint folder.

    Each file is written whole or not at all, the weights last.
    """
    out.mkdir(parents=True, exist_ok=True)
    if tokenizer_folder != out:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(tokenizer_folder / name, out / name)
    generation = {
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "do_sample": False,
    }
    _write_json(out / "config.json", hugging_face_config(model.shape))
    _write_json(out / "generation_config.json", generation)
    weights = {name: p.detach().cpu().to(torch.bfloat16) for name, p in model.named_parameters()}
    with replacing_tensors(out / "model.safetensors") as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})


def load(folder: Path) -> Llama:
    """Read a checkpoint written by `export`; the weights come back as float32.

    Raises:
        FileNotFoundError: when the folder holds no checkpoint.
        RuntimeError: when the weights do not fit the config.
    """
    model = Llama(shape_of(json.loads((folder / "config.json").read_text())))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model


def load_ours(folder: Path, option: str) -> Llama:
    """`load`, after a look at whether the checkpoint is one of `export`'s: another Llama may have
    the same names of tensors and be computed otherwise.

    Raises:
        UserError: begins with `option`, for any other.
    """
    config = read_config(folder)
    try:
        expected = hugging_face_config(shape_of(config))
        wanted = expected.keys() - {"torch_dtype", "use_cache"}
        other = sorted(key for key in wanted if config.get(key) != expected[key])
        other += [key for key in ("rope_scaling", "quantization_config") if config.get(key)]
    except KeyError as error:
        other = [str(error.args[0])]
    if other:
        raise UserError(
            f"{option}: {folder}/config.json: {other[0]} is {config.get(other[0])!r}; expected a "
            "model that 'decodebench train demo' made"
        )
    try:
        return load(folder)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{option}: {folder}: {one_line(error)}") from None


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a training state whole or not at all. Raises `UserError` and `OSError` for a disk that
    takes no more."""
    with replacing_tensors(path) as temporary:
        torch.save(state, temporary)


def load_state(path: Path) -> dict[str, Any] | None:
    """Read a training state, or return None where there is none; runs no code from the file.

    Raises:
        UserError: for a file that is empty, cut short or something else.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises whatever its bytes lead torch to
        if of_memory(error) or (isinstance(error, OSError) and error.filename):
            raise
        raise UserError(
            f"{path}: cannot be read: expected a training state that was written whole; restore "
            "it, or choose another folder"
        ) from None
    return state


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
