"""The bundled traces, recorded runs of the demo model: they are of it, and what it does."""

from __future__ import annotations

from dataclasses import replace

from backends import check_options
from backends.checkpoints import models, traces
from harness.core.nouns import Load, Model, Request, Sampling, Trial, Workload
from results.traces.recorded import DecisionTrace
from tests.support.exits.demo_answers import DEMO
from tests.support.exits.replays import record
from tests.unit.backends.own.test_replays import opened
from workloads.measured import load_prompts, load_rows, rows_checksum


def test_the_bundled_traces_are_of_this_demo_model() -> None:
    for name in ("adadecode", "autoregressive", "vllm", "vllm-early-exit"):
        source = traces.open_source("demo", name)
        assert isinstance(source, DecisionTrace)
        assert source.checksum == models.checksum(DEMO), f"{name}: record it anew"
        assert (source.depth, len(source.rows)) == (8, 80)
        assert len(source.workloads) == 4
        check_options(name, {"replay": "demo"}, DEMO)
    assert sum(path.stat().st_size for path in traces.BUNDLED.iterdir()) < 300_000


def test_the_bundled_trace_is_what_the_demo_model_does() -> None:
    """Its answers are as long as plain decoding's of the same rows."""
    source = traces.open_source("demo", "adadecode")
    mine = {row.request_id: row for row in source.samples() if row.workload == "gsm8k"}
    load = Load("closed", concurrency=1)
    made = Trial("autoregressive", {}, Model("demo"), Workload("gsm8k"), load, 20, 256)
    checksum = rows_checksum(made.workload, load_rows(made.workload, 0, 20, None))
    made = replace(made, workload=replace(made.workload, checksum=checksum))
    tokenizer = models.load_tokenizer(DEMO)
    stops = models.stop_ids(DEMO, tokenizer)
    asked = [
        Request(p.request_id, p.token_ids, 256, Sampling(), stops)
        for p in load_prompts(made, tokenizer)[:6]
    ]
    backend = opened(name="autoregressive")
    found = {g.request_id: len(g.token_ids) for g in record(backend, asked, 2)}
    backend.close()
    assert found == {r.id: mine[r.id].answer_tokens for r in asked}
    assert all(len(r.prompt_ids) == mine[r.id].prompt_tokens for r in asked)
