"""vLLM's real scheduler with prompts apart, under made-up loads and without a model.

Importing vLLM changes a process, so this runs in one of its own. It prints one JSON object per run
and line: what was asked for, and every step that was scheduled. Usage, in an environment with
`backends.vllm.arguments.ENVIRONMENT`:
``python scheduler_child.py MODEL_DIR FIRST_SEED RUNS``.
"""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from typing import Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from backends.early_exit.plugin.scheduler import AsyncSeparateScheduler, SeparateScheduler

BLOCK = 16
CLASSES = {
    ("separate", False): SeparateScheduler,
    ("separate", True): AsyncSeparateScheduler,
    ("mixed", False): Scheduler,
    ("mixed", True): AsyncScheduler,
}
MAX_STEPS = 3000


def main() -> None:
    """Each seed once with prompts apart and once as vLLM does it."""
    directory, first, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    init_none_hash(sha256)
    for seed in range(first, first + runs):
        for kind in ("separate", "mixed"):
            print(json.dumps(simulate(directory, seed, kind)))


def simulate(directory: str, seed: int, kind: str) -> dict[str, Any]:
    """One made-up load until everything is answered, or `MAX_STEPS` have passed."""
    draw = random.Random(seed)
    asynchronous = draw.random() < 0.3
    shape = {
        "max_num_seqs": draw.choice([1, 2, 4, 8]),
        "max_num_batched_tokens": draw.choice([16, 40, 256]),
        "prefix_caching": draw.random() < 0.5,
        "blocks": draw.choice([8, 12, 24, 200]),
        "asynchronous": asynchronous,
    }
    scheduler = make_scheduler(directory, shape, kind)
    room = min(512, (shape["blocks"] - 1) * BLOCK)
    waiting = deque(
        sorted(
            (make_request(draw, n, room, shape) for n in range(draw.randint(3, 14))),
            key=lambda pair: pair[0],
        )
    )
    abort_at = {draw.randint(1, 60): draw.random() for _ in range(draw.choice([0, 0, 2]))}
    asked = {r.request_id: [len(r.prompt_token_ids or ()), r.max_tokens] for _, r in waiting}
    steps, aborted, flying = [], [], deque[Any]()
    live: dict[str, Request] = {}
    for now in range(MAX_STEPS):
        while waiting and waiting[0][0] <= now:
            request = waiting.popleft()[1]
            live[request.request_id] = request
            scheduler.add_request(request)
        unfinished = [name for name, r in live.items() if not r.is_finished()]
        if now in abort_at and unfinished:
            name = unfinished[int(abort_at[now] * len(unfinished))]
            scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            aborted.append(name)
        begun = scheduler.has_requests()
        if begun:
            decoding = [r.request_id for r in scheduler.running if not r.is_prefill_chunk]
            reading = [r.request_id for r in scheduler.running if r.is_prefill_chunk]
            output = scheduler.schedule()
            rows = noted(output, live)
            steps.append({"rows": rows, "decoding": decoding, "reading": reading})
            flying.append((output, answered(output, live)))
        if flying and (len(flying) > int(asynchronous) or not begun or not steps[-1]["rows"]):
            scheduler.update_from_output(*flying.popleft())
        if not (waiting or flying or begun):
            break
    lengths = {name: len(r.output_token_ids) for name, r in live.items()}
    return {
        "seed": seed,
        "kind": kind,
        "shape": shape,
        "asked": asked,
        "aborted": aborted,
        "lengths": lengths,
        "steps": steps,
    }


def make_scheduler(directory: str, shape: dict[str, Any], kind: str) -> Any:
    """A scheduler over `blocks` blocks, as vLLM's engine makes it."""
    config = EngineArgs(
        model=directory,
        skip_tokenizer_init=True,
        max_num_seqs=shape["max_num_seqs"],
        max_num_batched_tokens=shape["max_num_batched_tokens"],
        max_model_len=512,
        enable_prefix_caching=shape["prefix_caching"],
        enforce_eager=True,
    ).create_engine_config()
    config.scheduler_config.async_scheduling = shape["asynchronous"]
    config.cache_config.num_gpu_blocks = shape["blocks"]
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=32, dtype=torch.float32)
    groups = [KVCacheGroupSpec(["layer"], spec)]
    return CLASSES[kind, shape["asynchronous"]](
        vllm_config=config,
        kv_cache_config=KVCacheConfig(shape["blocks"], [], groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
    )


def make_request(
    draw: random.Random, number: int, room: int, shape: dict[str, Any]
) -> tuple[int, Request]:
    """The step before which it arrives, and a request that alone would fit."""
    length = draw.choice([1, 2, draw.randint(1, 40), draw.randint(1, room - 2)])
    tokens = min(draw.choice([1, 2, 20, 60, 120]), room - length)
    common = [5] * draw.randint(0, length)
    prompt = common + [draw.randrange(90) for _ in range(length - len(common))]
    request = Request(
        request_id=f"r{number}",
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=tokens, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, sha256) if shape["prefix_caching"] else None,
    )
    return draw.choice([0, 0, draw.randint(0, 80)]), request


def noted(output: Any, live: dict[str, Request]) -> dict[str, list[int]]:
    """Of each row its first position, its count, how often the request had been preempted, and
    whether the row brings a token."""
    starts = {row.req_id: row.num_computed_tokens for row in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    starts |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return {
        name: [starts[name], count, live[name].num_preemptions, not live[name].is_prefill_chunk]
        for name, count in output.num_scheduled_tokens.items()
    }


def answered(output: Any, live: dict[str, Request]) -> ModelRunnerOutput:
    """What a model might say: a token for each row that has come to its end."""
    names = list(output.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[] if live[name].is_prefill_chunk else [7] for name in names],
    )


if __name__ == "__main__":
    main()
