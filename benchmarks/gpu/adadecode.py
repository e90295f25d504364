"""Everything about our engine that wants a GPU, in one go and without attention.

    python benchmarks/gpu/adadecode.py [--stages tests kernels engine vllm] [--out FOLDER]
                                       [--vllm-env FILE]

tests    every kernel and the CUDA executor natively against their references
kernels  benchmarks/kernels.py: share of the measured ceiling, ratio to the library's calls
engine   plain decoding of one sequence in the shape of Llama-3.1-8B with random weights, by graph:
         time per token against the floor of the bytes it reads; what segments and exit heads cost,
         and all of it again where calls have more rows
vllm     the same shape in vLLM with its defaults (CUDA graphs), dummy weights

A stage runs in a process of its own under a time limit; one that fails does not stop the next.
`--vllm-env` names a shell file to be read before vLLM, where it is unpacked somewhere of its own.
Ratios are ours over vLLM's tokens per second. The last line is JSON; the exit status is 1 when a
stage failed.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
LIMITS_S = {"tests": 240, "kernels": 150, "engine": 150, "vllm": 300}
CONTEXTS = (128, 1024, 1900)
TOKENS = 128
MAX_LEN = 2048
ROWS = 8
MORE_ROWS = (16, 32, 64)
DEVICE = "cuda"
EXITS = (8, 16, 24)
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stages", nargs="+", choices=LIMITS_S, default=list(LIMITS_S))
    parser.add_argument("--out", type=Path, help="keep each stage's output in this folder")
    parser.add_argument("--vllm-env", type=Path, help="a shell file to be read before vLLM")
    parser.add_argument("--in-child", choices=("engine", "vllm"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_adadecode: needs a CUDA device")
        return
    if chosen.in_child:
        print(json.dumps({"engine": engine, "vllm": vllm}[chosen.in_child]()))
        return
    result: dict[str, Any] = {}
    for stage in chosen.stages:
        result[stage] = run_stage(stage, chosen.out, chosen.vllm_env)
    if all(result.get(stage, {}).get("ok") for stage in ("engine", "vllm")):
        result["ours_over_vllm"] = {
            context: round(theirs / result["engine"]["ms_per_token"][context], 3)
            for context, theirs in result["vllm"]["ms_per_token"].items()
        }
    print(json.dumps(result))
    sys.exit(not all(result[stage]["ok"] for stage in chosen.stages))


def run_stage(stage: str, out: Path | None, vllm_env: Path | None) -> dict[str, Any]:
    """A stage's JSON line, with "ok" and "seconds"; what it printed is shown and kept."""
    print(f"== {stage}", flush=True)
    started = time.monotonic()
    try:
        done = subprocess.run(
            ["bash", "-c", command(stage, vllm_env)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            timeout=LIMITS_S[stage],
        )
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        shown = error.stdout or b""
        status, text = 124, shown.decode(errors="replace") if isinstance(shown, bytes) else shown
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{stage}.log").write_text(text)
    lines = text.rstrip().splitlines()
    print("\n".join(lines[-40:]), flush=True)
    # libraries may have a last word behind the JSON line
    last = next((line for line in reversed(lines) if line.startswith('{"')), None)
    found = json.loads(last) if last else {"last_line": lines[-1] if lines else ""}
    return {"ok": status == 0, "seconds": round(time.monotonic() - started, 1), **found}


def command(stage: str, vllm_env: Path | None) -> str:
    python = shlex.quote(sys.executable)
    if stage == "tests":
        # its options belong to the project's own versions of pytest and of the libraries
        plain = "-o addopts=--import-mode=importlib -o filterwarnings=default"
        other = " ".join(f"--ignore tests/kernels/test_{n}.py" for n in ("interpreted", "compiled"))
        # most of the time goes into compiling, on the host
        other += " -n 8" if find_spec("xdist") else ""
        return f"{python} -m pytest -q {plain} {other} tests/kernels"
    if stage == "kernels":
        return f"PYTHONPATH=. {python} benchmarks/kernels.py"
    before = f". {shlex.quote(str(vllm_env))} && " if stage == "vllm" and vllm_env else ""
    paths = f"PYTHONPATH={shlex.quote(str(ROOT))}:$PYTHONPATH"
    return f"{before}{paths} {python} benchmarks/gpu/adadecode.py --in-child {stage}"


def llama_folder(folder: str) -> Path:
    (Path(folder) / "config.json").write_text(json.dumps(LLAMA_8B))
    return Path(folder)


def seconds(run: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def engine() -> dict[str, Any]:
    """Milliseconds per token at some contexts, the floor, and the costs of the parts."""
    from backends.engine.executors.cuda import CudaExecutor
    from backends.engine.model.architecture import read_architecture
    from backends.engine.model.heads import ExitHead
    from benchmarks.support.device_timing import ceilings, describe

    with tempfile.TemporaryDirectory() as folder:
        shape = read_architecture(llama_folder(folder))
    ceiling = ceilings()
    fastest = max(ceiling["copy_bytes_per_s"], ceiling["read_bytes_per_s"])
    weights = random_weights(shape)
    read = weights.head.nbytes + sum(
        tensor.nbytes
        for layer in weights.layers
        for tensor in (layer.qkv, layer.out, layer.gate_up, layer.down)
    )
    result: dict[str, Any] = {**describe(), **ceiling, "rows": ROWS, "weight_bytes": read}
    sizes: dict[str, Any] = {"slots": 1, "max_len": MAX_LEN, "rows": ROWS}
    plain = CudaExecutor(weights, shape, **sizes)
    result["ms_per_token"], result["share_of_floor"] = {}, {}
    for context in CONTEXTS:
        per_token = min(decode(plain, context) for _ in range(3))
        cached = 2 * 2 * shape.layers * shape.kv_size * (context + TOKENS // 2)
        result["ms_per_token"][str(context)] = round(per_token * 1e3, 4)
        floor = (read + cached) / fastest
        result["share_of_floor"][str(context)] = round(floor / per_token, 3)
    plain.close()

    def heads(kind: str) -> list[ExitHead]:
        size = shape.vocabulary // (4 if kind == "shortlist" else 1)
        ids = torch.arange(size, device=DEVICE) if kind == "shortlist" else None
        matrix = weights.head[:size].contiguous()
        return [ExitHead(layer, matrix, ids) for layer in EXITS]

    for kind in ("bf16", "shortlist"):
        executor = CudaExecutor(weights, shape, heads(kind), **sizes)
        result[f"costs_{kind}"] = costs(executor)
        executor.close()
    result["by_rows"] = {}
    for rows in MORE_ROWS:
        executor = CudaExecutor(weights, shape, heads("shortlist"), **{**sizes, "rows": rows})
        found = costs(executor)
        executor.close()
        executor = CudaExecutor(weights, shape, **{**sizes, "rows": rows})
        found["ms_per_token"] = round(min(decode(executor, CONTEXTS[1]) for _ in range(3)) * 1e3, 4)
        result["by_rows"][str(rows)] = found
        executor.close()
    return result


def random_weights(shape: Any) -> Any:
    """Weights on the device, drawn there, of a size at which activations stay near one."""
    from backends.engine.model.weights import LayerWeights, Weights

    torch.manual_seed(1)

    def matrix(*sizes: int) -> torch.Tensor:
        scale = 1 / math.sqrt(sizes[-1])
        return torch.randn(*sizes, device=DEVICE, dtype=torch.bfloat16) * scale

    def layer() -> LayerWeights:
        gain = torch.ones(shape.width, device=DEVICE)
        return LayerWeights(
            *(gain, matrix(shape.query_size + 2 * shape.kv_size, shape.width), None, None, None),
            *(matrix(shape.width, shape.query_size), gain),
            *(matrix(2 * shape.feed_forward, shape.width), matrix(shape.width, shape.feed_forward)),
        )

    layers = tuple(layer() for _ in range(shape.layers))
    tables = matrix(shape.vocabulary, shape.width), matrix(shape.vocabulary, shape.width)
    gain = torch.ones(shape.width, device=DEVICE)
    return Weights(tables[0], layers, gain, tables[1], shape.epsilon)


def decode(executor: Any, context: int) -> float:
    """Seconds per token of one greedy sequence after a prompt of `context` tokens."""
    import numpy as np

    from backends.engine.executors.base import StepRows

    executor.prefill(0, [(i * 31) % 100000 + 5 for i in range(context)])
    wanted = np.zeros(1, np.int32)

    def run() -> None:
        token = 17
        for position in range(context, context + TOKENS):
            ((token,), _) = executor.advance(0, StepRows.of([(0, position, token)]), wanted)

    return seconds(run) / TOKENS


def costs(executor: Any) -> dict[str, Any]:
    """Microseconds of each segment without waiting for it, and of each head with its result."""
    from backends.engine.executors.base import StepRows

    executor.prefill(0, list(range(5, 505)))
    rows, repeats = StepRows.of([(0, 500, 17)]), 20

    def microseconds(call: Callable[[], object]) -> float:
        call()
        run = seconds(lambda: [call() for _ in range(repeats)])
        return round(run / repeats * 1e6, 1)

    numbers = range(len(EXITS) + 1)
    return {
        "segment_us": [microseconds(partial(executor.segment, i, rows)) for i in numbers],
        "exit_head_us": [microseconds(partial(executor.exit_head, i, rows)) for i in numbers[:-1]],
        "final_head_us": microseconds(partial(executor.greedy, rows)),
    }


def vllm() -> dict[str, Any]:
    """Milliseconds per token of vLLM at batch 1: the time of many tokens less that of one."""
    import vllm as package

    with tempfile.TemporaryDirectory() as folder:
        model = package.LLM(
            str(llama_folder(folder)),
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=MAX_LEN,
            enable_prefix_caching=False,
            seed=0,
        )
        vllm_seconds(model, 64, 8)
        found = {}
        for context in CONTEXTS:
            many, one = (
                min(vllm_seconds(model, context, tokens) for _ in range(3))
                for tokens in (TOKENS + 1, 1)
            )
            found[str(context)] = round((many - one) / TOKENS * 1e3, 4)
    return {"vllm": package.__version__, "ms_per_token": found}


def vllm_seconds(model: Any, context: int, tokens: int) -> float:
    """Of one greedy answer of exactly `tokens` tokens."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, ignore_eos=True, detokenize=False, max_tokens=tokens)
    prompt = {"prompt_token_ids": [(i * 31) % 100000 + 5 for i in range(context)]}
    start = time.perf_counter()
    (answer,) = model.generate([prompt], sampling, use_tqdm=False)
    elapsed = time.perf_counter() - start
    assert len(answer.outputs[0].token_ids) == tokens
    return elapsed


if __name__ == "__main__":
    main()
