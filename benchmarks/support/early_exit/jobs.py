"""Engines in processes of their own, for `benchmarks/gpu/early_exit.py`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SAME_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""Early exit needs it, so plain vLLM gets it too where like is compared with like."""


@dataclass
class Jobs:
    """Runs jobs, keeps their output, and does not do twice what was done."""

    out: Path
    vllm_env: Path | None
    tiny: bool
    minutes: float
    only_modes: Sequence[str] | None = None
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)

    @property
    def modes(self) -> Sequence[str]:
        """How engines run: "eager", "graphs" (a CUDA graph per segment, or plain vLLM's pieces)."""
        return self.only_modes or ("eager", "graphs")

    def device(self) -> str:
        """What these figures belong to."""
        import torch

        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
        return f"{name}, torch {torch.__version__}"

    def engine(
        self,
        name: str,
        backend: str | None,
        model: Path,
        options: Mapping[str, Any],
        runs: Sequence[Mapping[str, Any]],
        *,
        dtype: str = "bfloat16",
        environment: Mapping[str, str] | None = None,
        limit_s: int = 300,
    ) -> dict[str, Any] | None:
        """The result of a job of `job.py`; None where it failed."""
        job: dict[str, Any] = {"backend": backend, "model": str(model.resolve()), "dtype": dtype}
        job |= {"options": dict(options), "runs": list(runs)}
        path = self.out / f"{name}.job.json"
        text = json.dumps({**job, "environment": dict(environment or {})})
        kept = self.out / f"{name}.result.json"
        if kept.exists() and path.exists() and path.read_text() == text:
            print(f"{name}: done before", flush=True)
            found: dict[str, Any] = json.loads(kept.read_text())
            return found
        kept.unlink(missing_ok=True)
        path.write_text(text)
        command = (
            f"{shlex.quote(sys.executable)} benchmarks/support/early_exit/job.py {path.resolve()}"
        )
        output = self.shell(name, command, limit_s, environment)
        lines = (output or "").rstrip().splitlines()
        # libraries may have a last word behind the JSON line
        last = next((line for line in reversed(lines) if line.startswith('{"load_s"')), None)
        if last is None:
            if output is not None:
                self.failed.append(name)
            return None
        kept.write_text(last)
        result: dict[str, Any] = json.loads(last)
        return result

    def shell(
        self,
        name: str,
        command: str,
        limit_s: int,
        environment: Mapping[str, str] | None = None,
    ) -> str | None:
        """What a command printed, kept in NAME.log; None where it failed, which is noted."""
        before = f". {shlex.quote(str(self.vllm_env.resolve()))} && " if self.vllm_env else ""
        paths = f"PYTHONPATH={shlex.quote(str(ROOT))}:$PYTHONPATH "
        log = self.out / f"{name}.log"
        began = time.monotonic()
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"{before}{paths}{command}"],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
            try:
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                status = process.wait()
        text = log.read_text(errors="replace")
        print(f"{name}: {'ok' if status == 0 else 'FAILED'}, {time.monotonic() - began:.0f} s")
        if status != 0:
            self.failed.append(name)
            print("\n".join(text.rstrip().splitlines()[-25:]), flush=True)
        sys.stdout.flush()
        return text if status == 0 else None


def engine_options(mode: str, sizes: Sequence[int], **others: Any) -> dict[str, Any]:
    """Options of either backend for a mode: "eager"; "graphs", one per piece between attentions;
    "segments", one per segment where early exit has them, else vLLM's of the model; "compiled", the
    same code without graphs; "default", vLLM's own choice."""
    engine = others.pop("engine", {})
    if mode == "eager":
        return {"enforce_eager": True, **others, **({"engine": engine} if engine else {})}
    compilation: dict[str, Any] = {"cudagraph_capture_sizes": list(sizes)}
    if mode != "default":
        modes = {"graphs": "PIECEWISE", "segments": "FULL_AND_PIECEWISE"}
        compilation["cudagraph_mode"] = modes.get(mode, "NONE")
    return {
        "enforce_eager": False,
        **others,
        "engine": {**engine, "compilation_config": compilation},
    }
