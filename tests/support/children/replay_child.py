"""Records runs of vLLM's backends on the demo model and replays them, in a process of its own.

Usage: ``python replay_child.py FOLDER RECORD.json``. The record holds, by name, what each poll of
a real run and of its replay handed out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from harness.core.nouns import Model, Request
from tests.support.exits.demo_answers import DEMO, demo_requests
from tests.support.exits.replays import RATES, drive, record, write_recorded
from tests.support.fitted_medusa import fitted_medusa
from tests.support.small_shapes import small_shape

FIXED = {"threads": 1, "max_model_len": 1024}
EARLY = {"layers": [2, 4, 6], "threshold": 0.8}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "alone": (1, {}),
    "batch": (8, {}),
    "decaying": (3, {"decay": "calm", "threshold": 0.6}),
    "state": (2, {"measure": "state", "threshold": 0.95}),
}
"""Requests under way, and what is asked beside `EARLY`."""


def main() -> None:
    folder, result = (Path(argument) for argument in sys.argv[1:3])
    asked = demo_rows()
    found: dict[str, Any] = {}
    real: Any = opened("vllm-early-exit", {**EARLY, "record": True})
    for name, (concurrency, options) in CASES.items():
        real.configure(options)
        found[f"{name} real"] = drive(real, asked, concurrency)
        # a trace says under what it was recorded, as an engine that is opened so does
        settings = {**real.info.options, **options}
        if "threshold" in options:
            settings["thresholds"] = [options["threshold"]] * 3
        real.info.options.update(settings)
        write_recorded(folder / name, real, record(real, asked, concurrency))
    real.close()
    for name, (concurrency, options) in CASES.items():
        again = opened("vllm-early-exit", {**EARLY, **options, "replay": str(folder / name)})
        found["info"] = [again.info.provenance, again.info.lossless]
        found[f"{name} replayed"] = drive(again, asked, concurrency)
        again.close()
    plain = opened("vllm", {})
    found["vllm real"] = drive(plain, asked, 4)
    answers = record(plain, asked, 4)
    write_recorded(folder / "lengths", plain, answers)
    plain.close()
    plain = opened("vllm", {"replay": str(folder / "lengths")})
    found["vllm replayed"] = drive(plain, asked, 4)
    plain.close()
    prompts = {request.id: request.prompt_ids for request in asked}
    texts = [(prompts[one.request_id], one.token_ids) for one in answers]
    asked = [*asked[1:], cut_short(asked[0])]
    found |= head(folder, asked, "head", {"method": "eagle3"}) | drafts(folder, asked)
    medusa = {"method": "medusa", "draft": fitted_medusa(folder / "fitted", texts)}
    found |= head(folder, asked, "medusa", medusa)
    found["asked"] = {request.id: request.max_new_tokens for request in asked}
    result.write_text(json.dumps(found))


def drafts(folder: Path, asked: Sequence[Request]) -> dict[str, Any]:
    """Of vLLM's own speculative decoding, with one, four and then all of them under way; also on a
    shape of twice as many layers, for which a part of itself drafts."""
    name, found = "vllm-speculative", dict[str, Any]()
    real = opened(name, {"record": True})
    found["drafts real"] = [drive(real, asked, n) for n in (1, 4, len(asked))]
    trace = write_recorded(folder / "drafts", real, record(real, asked, 3))
    real.close()
    again = opened(name, {"replay": str(trace)})
    found["drafts replayed"] = [drive(again, asked, n) for n in (1, 4, len(asked))]
    again.close()
    shape = deeper_shape(folder)
    other = opened(name, {"replay": str(trace)}, shape)
    found["drafts elsewhere"] = drive(other, asked, 4)
    other.close()
    rated = opened(name, {"method": "eagle3", "drafts": 3, "replay": RATES}, shape)
    found["rated"] = drive(rated, asked, 4)
    found["states_after"] = rated.info.options["states_after"]
    rated.close()
    return found


def head(
    folder: Path, asked: Sequence[Request], case: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Of heads for the demo model inside vLLM. In the replay the bundled one drafts, or such of
    random weights where none is."""
    name, found = "vllm-speculative", dict[str, Any]()
    real = opened(name, {**options, "record": True})
    found[f"{case} real"] = drive(real, asked, 4)
    trace = write_recorded(folder / case, real, record(real, asked, 3))
    real.close()
    again = opened(name, {"method": options["method"], "replay": str(trace)})
    found[f"{case} replayed"] = drive(again, asked, 4)
    again.close()
    return found


def demo_rows() -> list[Request]:
    return demo_requests(4, workloads=("gsm8k", "humaneval", "xsum"), tokens=64)


def deeper_shape(folder: Path) -> Path:
    """Of twice as many layers as the demo model; its weights stay in `folder`."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    sizes = {"num_hidden_layers": 16, "num_attention_heads": 2, "head_dim": 32}
    return models.resolve(small_shape(folder / "target", **sizes))


def cut_short(request: Request) -> Request:
    """One that ends for want of room, in the middle of drafts."""
    return replace(request, max_new_tokens=13)


def opened(name: str, options: Mapping[str, Any], directory: Path = DEMO) -> Any:
    model = Model("demo", dtype="float32")
    return open_backend(name, directory, model, {**FIXED, **options})


if __name__ == "__main__":
    main()
