"""The frozen model's greedy answers, which exits learn from.

They are kept in the run's state folder batch by batch, so that a killed run goes on, and in the end
in the user's cache (`kept`) for other trainings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.training.exits.data import TrainPrompt
from backends.training.exits.kept import FORM, KeptAnswers
from backends.training.exits.memory import in_halves
from backends.training.exits.recipe import STATE
from harness.core.files import write_atomic

BATCH = 64
"""Prompts that are answered side by side, at the most."""
SHARE = 0.6
"""Of a GPU's free memory, for what a batch is estimated to take."""


def answers(
    out: Path,
    prompts: Sequence[TrainPrompt],
    directory: Path,
    stops: Sequence[int],
    like: Tensor,
    going_on: Callable[[int], bool],
    cached: KeptAnswers | None = None,
) -> list[list[int]] | None:
    """The model's greedy answers in the order of the prompts, stop token included.

    Args:
        out: the run's folder, whose state keeps every batch as soon as it is answered.
        prompts: what to answer, in batches of like length.
        directory: the checkpoint.
        stops: token ids that end an answer.
        like: a tensor on the device and in the dtype that the model is to run in.
        going_on: called with the number of prompts answered so far; False stops early.
        cached: where other trainings leave theirs, and this one its own, also when it is stopped.

    Returns:
        None when it was stopped early.

    Raises:
        UserError: for a GPU whose memory is too small for one prompt; `OSError` for a full disk.
    """
    path = out / STATE / "answers.jsonl"
    form = out / STATE / "answers.form"
    if not path.exists():
        write_atomic(form, str(FORM).encode())
    done = _read_answers(path)
    # a training that was begun by older code has answers of that
    if not (form.is_file() and form.read_text() == str(FORM)):
        cached = None
    known = {} if cached is None else cached.find(prompts)
    if taken := {number: ids for number, ids in known.items() if number not in done}:
        _append(path, json.dumps(list(taken.items())) + "\n")
        done |= taken
    try:
        whole = _answer(path, prompts, directory, stops, like, going_on, done)
    finally:
        if cached is not None and (new := done.keys() - known.keys()):
            cached.add(prompts, {number: done[number] for number in new})
    return [done[number] for number in range(len(prompts))] if whole else None


def _answer(
    path: Path,
    prompts: Sequence[TrainPrompt],
    directory: Path,
    stops: Sequence[int],
    like: Tensor,
    going_on: Callable[[int], bool],
    done: dict[int, list[int]],
) -> bool:
    """Answer what is not yet `done`, which grows. Whether it came to the end."""
    order = sorted(range(len(prompts)), key=lambda i: (prompts[i].limit, len(prompts[i].ids), i))
    left = [number for number in order if number not in done]
    model = None
    while left:
        if not going_on(len(done)):
            return False
        model = model or generator(directory, like)
        count = _side_by_side(model, like, [prompts[i] for i in left[:BATCH]])
        chosen, left = left[:count], left[count:]
        work = partial(generated, model, prompts, stops)
        for part, texts in in_halves(work, chosen):
            made = dict(zip(part, texts, strict=True))
            _append(path, json.dumps(list(made.items())) + "\n")
            done |= made
    return True


def _read_answers(path: Path) -> dict[int, list[int]]:
    """The batches on disk; a line that a kill cut short is dropped from the file too."""
    if not path.is_file():
        return {}
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(True) if line[-1] == "\n"]
    write_atomic(path, "".join(whole).encode())
    return {int(number): ids for line in whole for number, ids in json.loads(line)}


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        error.filename = str(path)  # which a full disk does not say
        raise


def generator(directory: Path, like: Tensor) -> Any:
    """The model, without the checkpoint's generation settings: some hold a repetition penalty, and
    transformers fills in from them whatever a call leaves open."""
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        str(directory), dtype=like.dtype, local_files_only=True, trust_remote_code=False
    )
    model.generation_config = GenerationConfig()
    return model.to(like.device).eval()


def _side_by_side(model: Any, like: Tensor, prompts: Sequence[TrainPrompt]) -> int:
    """How many of these prompts are answered at a time: on a GPU what its free memory holds."""
    if like.device.type != "cuda":
        return len(prompts)
    free = torch.cuda.mem_get_info(like.device)[0]
    free += torch.cuda.memory_reserved(like.device) - torch.cuda.memory_allocated(like.device)
    longest = max(len(prompt.ids) for prompt in prompts) + max(prompt.limit for prompt in prompts)
    need = longest * position_bytes(model.config, like.dtype.itemsize)
    return max(1, min(len(prompts), int(SHARE * free) // need))


def position_bytes(config: Any, width: int) -> int:
    """About what a position of a text takes: keys and values of all layers, and what one layer
    makes of a prompt.

    Args:
        config: transformers' configuration of the model.
        width: bytes of a number.
    """
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept = 2 * config.num_hidden_layers * config.num_key_value_heads * head
    return width * int(kept + 4 * (config.hidden_size + config.intermediate_size))


def generated(
    model: Any, prompts: Sequence[TrainPrompt], stops: Sequence[int], chosen: Sequence[int]
) -> list[list[int]]:
    """Answer some of the prompts as one batch, padded on the left."""
    from transformers import GenerationConfig

    asked = [prompts[i] for i in chosen]
    width = max(len(prompt.ids) for prompt in asked)
    padding = [width - len(prompt.ids) for prompt in asked]
    ids = torch.tensor([[0] * pad + prompt.ids for pad, prompt in zip(padding, asked, strict=True)])
    mask = torch.arange(width) >= torch.tensor(padding)[:, None]
    greedy = GenerationConfig(
        max_new_tokens=max(prompt.limit for prompt in asked),
        do_sample=False,
        pad_token_id=0,
        eos_token_id=list(stops) or None,
    )
    out: Tensor = model.generate(
        ids.to(model.device),
        attention_mask=mask.long().to(model.device),
        generation_config=greedy,
    )
    texts = []
    for prompt, row in zip(asked, out[:, width:].tolist(), strict=True):
        end = next((i + 1 for i, token in enumerate(row) if token in stops), len(row))
        texts.append(row[: min(end, prompt.limit)])
    return texts
