"""Drives the real `vllm` backend in a process of its own and prints what it saw as one JSON line.

vLLM changes the process that it runs in (torch's functions, the environment), so it stays out of
the test process. Usage: ``python vllm_child.py MODEL_DIR``.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends import open_backend
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Generation, Load, Model, Request, Sampling, to_json
from harness.measure.load_loop import run_load

MODEL = Model("tiny", dtype="float32")
GREEDY = [
    Request(f"greedy-{n}", tuple(range(7 * n + 3, 7 * n + 3 + length)), 12)
    for n, length in enumerate([1, 5, 40, 129, 130, 300])
]
SMALL: Mapping[str, Any] = {"kv_cache_gib": 0.125, "max_model_len": 512, "threads": 1}
CALLS: list[str] = []


def main() -> None:
    """Run every scenario; one engine at a time."""
    _watch_network()
    directory = Path(sys.argv[1])
    found: dict[str, Any] = {"refused": [refusal(directory, options) for options in BAD]}
    backend = open_backend("vllm", directory, MODEL, {**SMALL, "margins": True})
    found["margins"] = answers(backend, GREEDY)
    backend.close()
    backend = open_backend("vllm", directory, MODEL, SMALL)
    found["info"] = to_json(backend.info)
    found["greedy"] = [to_json(g) for g in run_load(backend, GREEDY, Load("closed", concurrency=6))]
    found["repeated"] = answers(backend, GREEDY)
    found["stops"] = stops(backend, found["greedy"][1]["token_ids"])
    found["sampled"] = sampled(backend)
    found["impossible"] = impossible(backend)
    found["after_reset"] = after_reset(backend)
    backend.close()
    caching = open_backend("vllm", directory, MODEL, {**SMALL, "prefix_caching": True})
    found["cached"] = [answers(caching, GREEDY[-1:]), answers(caching, GREEDY[-1:])]
    caching.reset()
    found["cached"].append(answers(caching, GREEDY[-1:]))
    caching.close()
    found["starved"] = starved(directory)
    found["reference"] = reference(directory)
    found["network"] = CALLS
    print(json.dumps(found))


BAD: list[dict[str, Any]] = [
    {"engine": {"block_size": "x"}},
    {"max_model_len": 5000},
    {"engine": {"kv_cache_dtype": "foo"}},
    {"kv_cache_gib": 0.001},
    {"kv_cache_gib": 0.00001},
]


def refusal(directory: Path, options: Mapping[str, Any]) -> str:
    """The message with which the backend refuses `options`."""
    try:
        open_backend("vllm", directory, MODEL, {**SMALL, **options}).close()
    except UserError as error:
        return str(error)
    return "accepted"


def answers(backend: Backend, requests: Sequence[Request]) -> list[Any]:
    """Token ids, finish, error and telemetry of each request, all submitted together."""
    return [_short(g) for g in run_load(backend, requests, Load("closed", concurrency=8))]


def _short(generation: Generation) -> list[Any]:
    telemetry = generation.telemetry
    return [generation.token_ids, generation.finished, generation.error, telemetry]


def stops(backend: Backend, tokens: Sequence[int]) -> list[Any]:
    """Stop at the third token of a known answer; then ignore that; then the model's own EOS."""
    stop = replace(GREEDY[1], stop_ids=(tokens[2],))
    return answers(backend, [stop]) + answers(backend, [replace(stop, ignore_eos=True)])


def sampled(backend: Backend) -> list[Any]:
    """The same seed twice, then another."""
    requests = [
        replace(GREEDY[2], id=f"seed-{n}", sampling=Sampling(1.0, 0.95, seed))
        for n, seed in enumerate([7, 7, 8])
    ]
    return answers(backend, requests)


def impossible(backend: Backend) -> list[Any]:
    """Requests that cannot be served whole, beside one that can."""
    return answers(
        backend,
        [
            Request("empty", (), 4),
            Request("long", (3,) * 505, 8),
            Request("fits", (3,) * 504, 8, ignore_eos=True),
            Request("unknown", (3, 1024), 4),
        ],
    )


def starved(directory: Path) -> list[Any]:
    """The room of a small cache, and what requests say of which not all have place in it."""
    small = {**SMALL, "kv_cache_gib": 0.004, "max_model_len": 256}
    backend = open_backend("vllm", directory, MODEL, small)
    asked = [
        Request(f"starved-{n}", tuple(range(3 + n, 53 + n)), 100, ignore_eos=True) for n in range(4)
    ]
    found = [backend.info.options["kv_cache_tokens"], answers(backend, asked)]
    backend.close()
    return found


def after_reset(backend: Backend) -> Any:
    """What a reset in the middle of requests leaves behind, and whether the engine still works."""
    for request in GREEDY:
        backend.submit(request)
    backend.poll()
    backend.reset()
    return [len(backend.poll()), answers(backend, GREEDY)]


def reference(directory: Path) -> list[Any]:
    """Greedy tokens and top-2 logit margins with transformers, one request at a time."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
    found = []
    for request in GREEDY:
        ids, margins = list(request.prompt_ids), []
        for _ in range(request.max_new_tokens):
            with torch.inference_mode():
                best = model(torch.tensor([ids])).logits[0, -1].topk(2)
            ids.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
        found.append([ids[len(request.prompt_ids) :], margins])
    return found


def _watch_network() -> None:
    """Note every address outside this machine that anything here tries to reach."""

    def connect(sock: socket.socket, address: Any) -> Any:
        if sock.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
            CALLS.append(str(address))
        return plain(sock, address)

    plain = socket.socket.connect
    socket.socket.connect = connect  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
