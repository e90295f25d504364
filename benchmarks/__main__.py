"""Every benchmark, one after the other.

    python -m benchmarks [--quick] [NAME ...]

`--quick` asks each for the least that it can do: it shows that all of them run and measures
nothing worth keeping. What is not here (a GPU) is told in a line. Exit code
1 when a benchmark fails; those after it run all the same.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import nearest

ROOT = Path(__file__).resolve().parents[1]
OUT = "OUT"
"""Stands for a folder that is thrown away."""


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    quick: str
    arguments: str = ""
    needs: str | None = None


SCRIPTS = (
    Script("load_loop", "--seconds 1 --commits 20000"),
    Script("pace", "--seconds 4 --pairs 50 --gap 1"),
    Script("results_scale", "--trials 4 --requests 50"),
    Script("gate/power", "--quick"),
    Script("soundness/interval_coverage", "--experiments 20 --seeds 1 --requests 16"),
    Script("soundness/wandering", "--comparisons 10"),
    Script("soundness/change_points", "--quick"),
    Script("soundness/goodput_search", "--quick"),
    Script("soundness/kept_up", "--quick"),
    Script("soundness/real_aa", "--quick"),
    Script("soundness/fuzz_inputs", "--experiments 20 --data 4 --command 1"),
    Script("soundness/planted_faults", "--only load_loop"),
    Script("engine/at_size", "--quick"),
    Script("engine/batching", "--quick"),
    Script("engine/drafts", "--quick"),
    Script("engine/loadings", "--quick"),
    Script("adadecode", "--requests 1 --repeats 1"),
    Script("soundness/replay", "--quick"),
    Script("soundness/exactness", "--quick"),
    Script("soundness/first_tokens", "--tokens 400 --systems autoregressive"),
    Script("soundness/cluster", "--nodes 2 --trials 8 --seconds 0.1"),
    Script("tetris/planner", "--quick"),
    Script("tetris/at_scale", "--quick"),
    Script("tetris/paper", "--quick"),
    Script("tetris/live", "--quick"),
    Script("tetris/nothing_lost", "--quick"),
    Script("tetris/workers", "--quick"),
    Script("tetris/labels", "--quick"),
    Script("tetris/replanned", "--quick"),
    Script("vllm_overhead", "--requests 1 --tokens 8 --repeats 1"),
    Script("sizes", "--sizes 0.1b --tokens 4 --requests 1 --rows 1 --repeats 1"),
    Script("early_exit", "--parts never --modes eager --repeats 1 --requests 2"),
    Script("http_truth", "--tools decodebench --cases tokens --repeats 1"),
    Script("kernels", "", needs="cuda"),
    Script("gpu/adadecode", "", needs="cuda"),
    Script("gpu/early_exit", f"--out {OUT} --tiny", f"--out {OUT}", needs="cuda"),
    Script("gpu/sizes", f"--out {OUT} --tiny", f"--out {OUT}", needs="cuda"),
    Script("gpu/step_profile", "--shape 0.1b --tokens 8", needs="cuda"),
    Script("gpu/midsize", f"--out {OUT} --minutes 0.5", f"--out {OUT}", needs="cuda"),
)
BY_OTHERS = ("gpu/early_exit_midsize",)
"""Run by other benchmarks, in a process of its own."""


def missing(need: str | None) -> str | None:
    """Why a benchmark cannot run here."""
    if need == "cuda":
        import torch

        return None if torch.cuda.is_available() else "needs a CUDA device"
    return None


def run(script: Script, quick: bool, folder: str) -> bool:
    """Run one, its output passed through; whether it ended well."""
    chosen = (script.quick if quick else script.arguments).replace(OUT, folder)
    file = ROOT / "benchmarks" / f"{script.name}.py"
    command = [sys.executable, str(file), *shlex.split(chosen)]
    return subprocess.call(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these alone, such as load_loop")
    parser.add_argument("--quick", action="store_true", help="the least that each can do")
    asked = parser.parse_args()
    known = {script.name: script for script in SCRIPTS}
    for name in asked.names:
        if name not in known:
            print(f"no benchmark '{name}': {nearest(name, known)}", file=sys.stderr)
            sys.exit(2)
    failed: list[str] = []
    for script in [known[name] for name in asked.names] or SCRIPTS:
        if why := missing(script.needs):
            print(f"== {script.name}: {why}", flush=True)
            continue
        print(f"== {script.name}", flush=True)
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            ended_well = run(script, asked.quick, folder)
        print(f"== {script.name}: {time.monotonic() - begin:.0f} s", flush=True)
        failed += [] if ended_well else [script.name]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
