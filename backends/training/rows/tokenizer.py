"""The demo model's tokenizer: byte-level BPE with single digits, trained on the bundled rows."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from harness.core.files import replacing, write_atomic
from workloads.bundled import GENERATORS, iter_rows
from workloads.prompts import answer, instruction

VOCABULARY = 1280
SPECIALS = ("<|pad|>", "<|begin|>", "<|user|>", "<|assistant|>", "<|end|>")
PAD, BEGIN, USER, ASSISTANT, END = range(len(SPECIALS))
MAX_LENGTH = 4096
CHAT_TEMPLATE = (
    "{{- '<|begin|>' -}}"
    "{%- for message in messages -%}"
    "{{- '<|assistant|>' if message['role'] == 'assistant' else '<|user|>' -}}"
    "{{- message['content'] -}}{{- '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def corpus(rows_per_workload: int, seed: int) -> Iterator[str]:
    """Yield the instructions and the answers of train rows."""
    for workload in GENERATORS:
        for row in islice(iter_rows(workload, "train", seed), rows_per_workload):
            yield instruction(workload, row)
            yield answer(workload, row)


def train_tokenizer(out: Path, rows_per_workload: int = 3000, seed: int = 0) -> None:
    """Train the tokenizer and write `tokenizer.json` and `tokenizer_config.json` into `out`.

    Every byte is a token, so any text comes back unchanged.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(
        Regex(r" ?\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\n+ *|\s+(?!\S)|\s+"), behavior="isolated"
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(rows_per_workload, seed), trainer)
    told = {
        "bos_token": SPECIALS[BEGIN],
        "eos_token": SPECIALS[END],
        "pad_token": SPECIALS[PAD],
        "chat_template": CHAT_TEMPLATE,
    }
    write_tokenizer(tokenizer, out, told, MAX_LENGTH)


def write_tokenizer(tokenizer: Any, out: Path, told: dict[str, str], longest: int) -> None:
    """Write a tokenizer of the `tokenizers` library as transformers reads it.

    `tokenizer.json` is written last, and whole or not at all: where it is there, all is.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
        out: the folder, made where it is not there.
        told: special tokens, and a chat template where there is one, by their keys.
        longest: tokens of a text at the most.
    """
    out.mkdir(parents=True, exist_ok=True)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **told,
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
    }
    write_atomic(out / "tokenizer_config.json", (json.dumps(config, indent=2) + "\n").encode())
    with replacing(out / "tokenizer.json") as temporary:
        tokenizer.save(str(temporary))


def load_tokenizer(folder: Path) -> Any:
    """Return the transformers tokenizer of a checkpoint folder."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(str(folder))
