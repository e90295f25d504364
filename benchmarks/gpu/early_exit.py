"""Everything about early exit inside vLLM that wants a GPU, in one go and without attention.

    python benchmarks/gpu/early_exit.py --out FOLDER [--stages tests equal 1b 8b midsize]
                                        [--vllm-env FILE] [--minutes 3] [--tiny]

tests    the kernels natively against their references, and tests/e2e/test_early_exit.py
equal    a tiny random model: never leaving against plain vLLM, and a schedule of exits with CUDA
         graphs against the same without and against eager mode: answers that are equal
1b, 8b   shapes of Llama 3 with random weights: static exits by depth and batch, eager and with a
         graph per segment, against plain vLLM in the same mode; what segments and checks cost
midsize  a model trained on the spot, real exits by each measure: speed and agreement with plain
         vLLM at several batches

Every engine runs in a process of its own under a time limit, its output kept in the folder; one
that fails does not stop the next, and the same command goes on behind what is done. "ideal" is
plain vLLM's time with as many layers as really ran (a line through its times at full and half
depth), so that head and host count on both sides; "with fill" adds the time of the fill's matrix
product alone. `--vllm-env` names a shell file to be read before each engine. `--tiny` tries every
path in small, on a CPU too. The last line is JSON; the exit status is 1 when something failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu import early_exit_midsize
from benchmarks.support.early_exit import equal as early_exit_equal
from benchmarks.support.early_exit import shapes as early_exit_shapes
from benchmarks.support.early_exit.jobs import Jobs

STAGES: dict[str, Callable[[Jobs], dict[str, Any]]] = {
    "tests": early_exit_equal.tests,
    "equal": early_exit_equal.equal,
    "1b": early_exit_shapes.llama_1b,
    "8b": early_exit_shapes.llama_8b,
    "midsize": early_exit_midsize.midsize,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--vllm-env", type=Path, help="a shell file to be read before vLLM")
    parser.add_argument("--minutes", type=float, default=3.0, help="of training the mid-size model")
    parser.add_argument("--modes", nargs="+", choices=("eager", "graphs"), default=None)
    parser.add_argument("--tiny", action="store_true", help="try every path in small")
    chosen = parser.parse_args()
    jobs = Jobs(chosen.out, chosen.vllm_env, chosen.tiny, chosen.minutes, chosen.modes)
    result: dict[str, Any] = {"device": jobs.device()}
    for stage in chosen.stages:
        print(f"== {stage}", flush=True)
        result[stage] = STAGES[stage](jobs)
        (chosen.out / f"{stage}.json").write_text(json.dumps(result[stage], indent=1) + "\n")
    result["failed"] = jobs.failed
    print(json.dumps(result))
    sys.exit(bool(jobs.failed))


if __name__ == "__main__":
    main()
