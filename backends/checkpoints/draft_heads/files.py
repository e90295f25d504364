"""Folders of heads that draft for a model: vLLM's formats of EAGLE-3 and Medusa.

A folder has what vLLM loads, ``config.json`` and ``model.safetensors``; trained here it also has
``draft_head.json`` with the model's checksum and the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import DRAFT_HEAD, replacing_tensors, write_json
from backends.engine.model.architecture import EngineError, read_architecture
from harness.core.errors import UserError

FORMAT = 1
ABOUT, TENSORS, CONFIG = DRAFT_HEAD, "model.safetensors", "config.json"
EAGLE3, MEDUSA = "eagle3", "medusa"
KINDS = (EAGLE3, MEDUSA)
EAGLE_LAYERS = "eagle_aux_hidden_state_layer_ids"
"""The key that says after which of the target's layers a head reads states."""
ARCHITECTURES = {EAGLE3: "LlamaForCausalLMEagle3", MEDUSA: "MedusaModel"}
_KEPT = (
    "hidden_act",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "torch_dtype",
    "dtype",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
"""Keys of the target's configuration that an EAGLE-3 head shares."""


def eagle_config(directory: Path, layers: Sequence[int]) -> dict[str, Any]:
    """The ``config.json`` of an EAGLE-3 head whose decoder layer has the target's sizes.

    Args:
        directory: the target.
        layers: after which of its layers states are read; its number of layers means the last.

    Raises:
        UserError: for a target that the engine cannot compute.
    """
    try:
        shape = read_architecture(directory)
    except EngineError as error:
        raise UserError(str(error)) from None
    theirs = models.read_config(directory)
    return {
        "architectures": [ARCHITECTURES[EAGLE3]],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "draft_vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.epsilon,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        EAGLE_LAYERS: list(layers),
        **{key: theirs[key] for key in _KEPT if theirs.get(key) is not None},
    }


def medusa_config(directory: Path, heads: int) -> dict[str, Any]:
    """The ``config.json`` of so many Medusa heads of one residual block each, which share one
    copy of the target's head. Raises `UserError` for a target that is no checkpoint."""
    theirs = models.read_config(directory)
    dtype = theirs.get("dtype") or theirs.get("torch_dtype")
    return {
        "architectures": [ARCHITECTURES[MEDUSA]],
        "model_type": "medusa",
        "vocab_size": theirs["vocab_size"],
        "hidden_size": theirs["hidden_size"],
        "medusa_num_heads": heads,
        "medusa_num_layers": 1,
        "medusa_fc_bias": False,
        "original_lm_head": True,
        **({"torch_dtype": dtype} if dtype else {}),
    }


def write_files(out: Path, config: dict[str, Any], tensors: Mapping[str, Any]) -> None:
    """Write the two files that vLLM loads; `tensors` lie on the CPU. Raises `UserError`
    and `OSError` for a disk that takes no more."""
    from safetensors.torch import save_file

    with replacing_tensors(out / TENSORS) as temporary:
        save_file(dict(tensors), temporary)
    write_json(out / CONFIG, config)
