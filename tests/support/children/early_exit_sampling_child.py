"""Samples from real engines in a process of its own and prints the answers as one JSON line.

Usage: ``python early_exit_sampling_child.py MODEL_DIR``. One plain vLLM and one that leaves early
answer the same requests, with the margins of their logits. The reference leaves at one layer
always: then nothing behind that layer matters after the first token, so it is transformers' model
with the other layers taken away.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends import open_backend
from harness.core.names import PASS_US
from harness.core.nouns import Load, Model, Request, Sampling
from harness.measure.load_loop import run_load

LAYER = 5
MODEL = Model("tiny", dtype="float32")
OPTIONS: Mapping[str, Any] = {
    "kv_cache_gib": 0.05,
    "max_model_len": 128,
    "threads": 1,
    "margins": True,
}
EARLY: Mapping[str, Any] = {"layers": [2, LAYER], "step_times": False}
STATIC = {"measure": "static", "layers": [LAYER]}
ALWAYS = {"measure": "softmax", "layers": [LAYER], "threshold": 0.0}
"""Leaves where `STATIC` does, with the logits that the check has computed."""
SOMETIMES = {"measure": "softmax", "layers": [2, LAYER], "threshold": 0.4}
GREEDY = [
    Request(f"r{n}", tuple(range(3 + n, 3 + n + length)), 14 + n, ignore_eos=True)
    for n, length in enumerate((1, 5, 33, 20))
]
SAMPLED = [
    replace(request, sampling=Sampling(temperature, top_p, seed))
    for request, temperature, top_p, seed in zip(
        GREEDY, (1.0, 0.7, 1.5, 1.0), (1.0, 0.8, 0.5, 0.9), (5, 6, 7, 5), strict=True
    )
]


def main() -> None:
    """Every run, then the reference's logits along the answers."""
    directory = Path(sys.argv[1])
    plain = open_backend("vllm", directory, MODEL, OPTIONS)
    found: dict[str, Any] = {"plain": answers(plain, SAMPLED)}
    plain.close()
    backend: Any = open_backend("vllm-early-exit", directory, MODEL, {**OPTIONS, **EARLY})
    backend.configure({"measure": "never"})
    found["never"] = answers(backend, SAMPLED)
    for name, chosen in {"static": STATIC, "always": ALWAYS}.items():
        backend.configure(chosen)
        found[name] = {"sampled": answers(backend, SAMPLED), "greedy": answers(backend, GREEDY)}
        found[name]["narrow"] = answers(backend, narrow())
        found[name]["stopped"] = answers(backend, stopping(found[name]["greedy"]))
    backend.configure(SOMETIMES)
    found["alone"] = [alone(backend, request) for request in SAMPLED]
    backend.close()
    static = found["static"]
    found["reference"] = {name: logits(directory, static[name]) for name in ("sampled", "greedy")}
    print(json.dumps(found))


def answers(backend: Any, requests: Sequence[Request]) -> list[Any]:
    """Token ids, finish and telemetry but for times of each request, all submitted together after a
    reset."""
    backend.reset()
    found = run_load(backend, requests, Load("closed", concurrency=len(requests)))
    for generation in found:
        del generation.telemetry[PASS_US]
    return [[g.token_ids, g.finished, g.telemetry] for g in found]


def narrow() -> list[Request]:
    """So small a top_p that only the best token is left."""
    return [replace(request, sampling=Sampling(1.0, 1e-6, 3)) for request in GREEDY]


def stopping(whole: Sequence[Any]) -> list[Request]:
    """Each but the first request stops at the first token that was not in its answer's first four,
    which an early exit chose."""
    first, *others = GREEDY
    found = [first]
    for request, (tokens, *_) in zip(others, whole[1:], strict=True):
        stop = next(token for token in tokens[4:] if token not in tokens[:4])
        found.append(replace(request, ignore_eos=False, stop_ids=(stop,)))
    return found


def alone(backend: Any, request: Request) -> list[Any]:
    """The same request twice, with one aborted in between; then with another seed."""
    first = answers(backend, [request])
    backend.submit(request)
    for _ in range(5):
        backend.poll()
    again = answers(backend, [request])
    other = replace(request, sampling=replace(request.sampling, seed=request.sampling.seed + 1))
    return [*first, *again, *answers(backend, [other])]


def logits(directory: Path, found: Sequence[Any]) -> list[list[list[float]]]:
    """For each answer and each of its tokens the logits that chose it: of the whole model for the
    first, behind `LAYER` for the others."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    inputs = [
        torch.tensor([[*request.prompt_ids, *tokens]])
        for request, (tokens, *_) in zip(GREEDY, found, strict=True)
    ]
    with torch.inference_mode():
        whole = [model(ids).logits[0] for ids in inputs]
        model.model.layers = model.model.layers[:LAYER]
        early = [model(ids).logits[0] for ids in inputs]
    rows = []
    for request, full, cut in zip(GREEDY, whole, early, strict=True):
        last = len(request.prompt_ids) - 1
        rows.append([full[last].tolist(), *cut[last + 1 : -1].tolist()])
    return rows


if __name__ == "__main__":
    main()
