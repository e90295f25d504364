"""What an experiment may ask for: refused before any of it is made, and raised by a key."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from harness.cli import wiring
from harness.core.errors import UserError
from harness.experiment.config import Experiment, parse_experiment
from workloads.measured import load_prompts

ROW = json.dumps({"question": "a" * 2**18, "answer": "#### 5"}).encode() + b"\n"


def parse(**changes: Any) -> Experiment:
    content: dict[str, Any] = {
        "name": "demo",
        "model": "demo",
        "backends": ["scripted"],
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 4,
    }
    return parse_experiment(content | changes, "f.yaml", wiring.known())


def refusal(**changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        wiring.resolve(parse(**changes))
    line = str(caught.value)
    assert "\n" not in line
    return line


NUMBERS = list(range(16, 116))
GRID = {"name": "scripted", "seed": NUMBERS, "tokens": NUMBERS, "capacity": NUMBERS}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"repeats": 10**7},
            "f.yaml: 10,000,000 trials (backends x options x workloads x loads x repeats), more "
            "than 10,000; 'limits: {trials: N}' allows more",
        ),
        ({"requests": 10**7}, "10,000,000 prompts (requests x workloads), more than 20,000"),
        ({"requests": 10**9}, "requests: expected a whole number up to 10000000, got 1000000000"),
        (
            {"backends": [GRID]},
            "backends[0]: 1,000,000 cells of a grid, more than 200; 'limits: {e",
        ),
        (
            {"backends": [{"name": "scripted", "seed": NUMBERS[n : n + 50]} for n in (0, 50)] * 3},
            "f.yaml: backends[4]: 201 backends x options, more than 200; 'limits: {engines: N}'",
        ),
        (
            {"load": [{"kind": "gamma", "rate": NUMBERS * 9, "burstiness": NUMBERS * 9}]},
            "f.yaml: load[0]: 810,000 cells of a grid, more than 10,000; 'limits: {trials: N}'",
        ),
        ({"requests": 2001}, "2,001 bundled rows to be made, more than 2,000; 'limits: {bundled_"),
        ({"workloads": [{"name": "gsm8k", "mix": "1:1"}], "requests": 501}, "2,004 bundled rows"),
        ({"limits": {"trial": 5}}, "f.yaml: limits.trial: unknown key; did you mean 'trials'?"),
        ({"limits": {"trials": 0}}, "limits.trials: expected a whole number of at least 1, got 0"),
        ({"limits": [1]}, "f.yaml: limits: expected a mapping of keys, got [1]"),
        ({"trials": 5}, "f.yaml: trials: unknown key; it belongs under 'limits'"),
    ],
)
def test_too_much_is_one_line_that_names_the_key(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(**changes)


def test_limits_can_be_raised() -> None:
    assert len(parse(repeats=10_001, limits={"trials": 10_001}).trials()) == 10_001
    assert "10,002 trials" in refusal(repeats=10_002, limits={"trials": 10_001})
    many = parse(backends=[{"name": "scripted", "seed": list(range(201))}], limits={"engines": 201})
    assert len(many.backends) == 201
    few = parse(limits={"bundled_rows": 3, "prompts": 4})
    with pytest.raises(UserError, match="4 bundled rows to be made, more than 3"):
        wiring.resolve(few)
    assert wiring.resolve(parse(limits={"bundled_rows": 4, "prompts": 4})).requests == 4


def test_rows_that_are_drawn_again_are_not_made_again() -> None:
    again = parse(workloads=[{"name": "gsm8k", "rows": 3}], limits={"bundled_rows": 3})
    assert wiring.resolve(again).workloads[0].workload.checksum


def test_what_is_read_of_data_files_is_bounded_all_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"
    rows = [ROW.replace(b"aaa", str(n).encode(), 1) for n in range(10)]
    one.write_bytes(gzip.compress(b"".join(rows[:5])))
    two.write_bytes(gzip.compress(b"".join(rows[5:])))
    both = [{"name": "gsm8k", "source": str(path)} for path in (one, two)]
    limits = {"data_mib": 3, "data_rows": 10, "bundled_rows": 1}
    assert wiring.resolve(parse(workloads=both, limits=limits)), "none of these rows is made"
    line = refusal(workloads=both, limits={"data_mib": 2})
    assert "two.jsonl.gz, line 3: more bytes (unpacked) than are read; 'limits: {data_mib" in line
    line = refusal(workloads=both, limits={"data_rows": 9})
    assert "two.jsonl.gz, line 5: more rows than are read; 'limits: {data_rows: N}'" in line


def test_times_of_a_trace_are_rows_that_are_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("0\n1\n2\n3\n4\n")
    load = [{"kind": "trace", "trace": str(trace)}]
    assert wiring.resolve(parse(load=load, limits={"data_rows": 8}))
    assert "trace.txt, line 4: more rows than are read" in refusal(
        load=load, limits={"data_rows": 3}
    )


def test_a_child_reads_what_the_limits_were_raised_for(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes(b"".join(ROW.replace(b"aaa", str(n).encode(), 1) for n in range(5)))
    raised = wiring.resolve(parse(workloads=[{"name": "gsm8k", "source": str(data)}]))
    tokenizer = models.load_tokenizer(wiring.model_folder(raised.models[0]))
    assert len(load_prompts(raised.trials()[0], tokenizer)) == 4


def test_a_rate_without_end_is_found_before_an_engine_is_loaded() -> None:
    assert "'rate' must be within 1e-09 to 1e+09" in refusal(
        load=[{"kind": "poisson", "rate": 1e-300}]
    )
