"""Early exit inside vLLM: a model class registered from outside, without a change to vLLM.

The system of "An Efficient Inference Framework for Early-exit Large Language Models" on a current
vLLM: iteration-level batching of early exits, filling of the key-value cache, three confidence
measures. The paper's own model, T5, is not in vLLM any more; this is the Llama family.
"""

from __future__ import annotations

from backends.vllm.tiles import allow_tiles

ARCHITECTURE = "EarlyExitLlamaForCausalLM"
FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM")
"""Architectures whose checkpoints the plugin can run; Mistral's with full attention only."""
TESTED_VLLM = ("0.32.0",)


def register() -> None:
    """Make the architecture known to vLLM: the entry point in the group vllm.general_plugins, which
    vLLM calls in each of its processes, a server's too."""
    from vllm import ModelRegistry

    allow_tiles()
    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        target = "backends.early_exit.plugin.model:EarlyExitLlamaForCausalLM"
        ModelRegistry.register_model(ARCHITECTURE, target)
