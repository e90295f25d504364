"""A metric is said once: from its entry come the numbers, the frames, the doc and the report."""

from __future__ import annotations

import ast
import collections
import dataclasses
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import results
from harness.cli.display import print_cells
from reports.words.definitions import definitions
from results import registry, summary
from results.compare.reasons import REASONS
from results.compare.validity import NATIVE, REFERENCE
from results.metrics import latency
from results.registry import Metric
from results.registry.metric import Section
from results.registry.tables import metrics_table, reasons_table, rewritten, void_table
from results.rows import cells, summaries
from tests.support.results import stored_runs
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import answer, of, run_of

ROOT = Path(__file__).parents[4]
DOC = ROOT / "docs/metrics.md"


def decode_s() -> Metric:
    """The example of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = textwrap.dedent(text[text.index("   Metric(\n") : text.index("   )\n") + 5])
    found: Metric = eval(code, {"Metric": Metric, "latency": latency})
    return found


EQUAL = Metric(
    name="equal_tokens",
    section="answers",
    unit="tokens",
    text="Tokens of equal answers.",
    formula=lambda t: int(t.requests.tokens[t.pairs.rows[t.pairs.equal()]].sum()),
    needs="reference",
    pooled="sum",
    void_with="reference answers",
)


def add(monkeypatch: pytest.MonkeyPatch, *metrics: Metric) -> None:
    monkeypatch.setattr(registry, "METRICS", (*registry.METRICS, *metrics))


def test_a_metric_of_one_entry_is_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """35 ms, 5 ms and none; the request that failed is no sample."""
    metric = decode_s()
    add(monkeypatch, metric)
    asked = [generation("a", [10, 20, 45]), generation("b", [10, 15]), generation("c", [10])]
    asked.append(generation("d", [10, 99], finished="error"))
    run = run_of(tmp_path, record(trial("fast"), asked))
    (row,) = summaries(run)
    assert row["decode_s_p50"] == pytest.approx(0.005)
    assert row["decode_s_mean"] == pytest.approx(0.040 / 3)
    assert list(row)[-1] == "decode_s_mean", "what is new comes last"
    (cell,) = cells(run)
    assert cell["decode_s_p99"] == row["decode_s_p99"]
    assert run.trials["decode_s_p50"][0] == pytest.approx(0.005)
    each = run.requests["decode_s"].tolist()
    assert each == pytest.approx([0.035, 0.005, 0.0, np.nan], nan_ok=True)
    assert f"| `decode_s`, per sample | s | smaller | {metric.text} |" in metrics_table("time")
    term = "decode_s, s, one per sample"
    assert dict(definitions([cell]))[term] == metric.text.replace("`", "")
    print_cells([cell])
    _, headings, _, numbers, *_ = capsys.readouterr().out.splitlines()
    assert re.search(r"goodput +decode ms +quality", headings)
    assert "5 / 34.4?" in numbers


def test_an_entry_says_what_it_needs_how_it_is_pooled_and_what_voids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(monkeypatch, EQUAL)
    clipped = dataclasses.replace(record(stored_runs.REFERENCE, []).validity, valid=False)
    clipped = dataclasses.replace(clipped, reasons=("output-clipped: 1 of 1",))
    repeat = dataclasses.replace(stored_runs.REFERENCE, repeat=1)
    run = run_of(
        tmp_path,
        record(stored_runs.REFERENCE, [answer(20, [1, 2])]),
        dataclasses.replace(record(repeat, [answer(20, [1, 2])]), validity=clipped),
        *(record(trial("fast", repeat=i), [answer(10, [1, 2])]) for i in (0, 1)),
    )
    rows = summaries(run)
    assert [of(rows, "fast", i)["equal_tokens"] for i in (0, 1)] == [2, 2]
    assert "equal_tokens" not in of(rows, "fast", 0)["void_metrics"]
    assert "equal_tokens" in of(rows, "fast", 1)["void_metrics"]
    cell = of(cells(run), "fast")
    assert cell["equal_tokens"] == 4
    assert "equal_tokens" not in cell["spread"]
    assert "`equal_tokens`" in void_table()
    assert "Tokens of equal answers. In a cell: added up" in metrics_table("answers")
    alone = results.load(run_of(tmp_path / "alone", record(trial("fast"), [answer(10, [1])])).path)
    assert summaries(alone)[0]["equal_tokens"] is None
    assert cells(alone)[0]["equal_tokens"] is None


def test_a_report_defines_what_its_run_has(tmp_path: Path) -> None:
    run = run_of(tmp_path, record(trial("fast"), [answer(10, [1, 2])]))
    terms = [term.partition(",")[0] for term, _ in definitions(cells(run))]
    assert {"speedup (Speed-up)", "ttft_s (TTFT)", "itl_s", "percentiles"} <= set(terms)
    assert "early_exit_rate" not in terms
    assert "e2e_s (End to end)" in [t.partition(",")[0] for t, _ in definitions([])]


def test_what_compares_is_void_with_what_it_is_compared_with() -> None:
    assert set(REFERENCE.speed) == {
        *("speedup", "speedup_low", "speedup_high", "throughput_ratio"),
        *("speedup_matched", "speedup_matched_low", "speedup_matched_high"),
        *("inner_token_latency_ratio", "speedup_more_repeats"),
        *(f"speedup_{part}" for part in ("steps", "step_time", "length")),
        *(f"speedup_{part}_low" for part in ("steps", "step_time", "length")),
        *(f"speedup_{part}_high" for part in ("steps", "step_time", "length")),
    }
    assert set(REFERENCE.answers) == {
        *("good_and_right_per_s", "consistency_ratio", "rouge_l_to_full", "length_ratio"),
        *("first_divergence", "first_divergence_request", "first_divergence_margin"),
        *(f"first_divergence_{suffix}" for suffix in ("p50", "p95", "p99", "mean")),
    }
    assert set(NATIVE.speed) == {
        *("speedup_native", "speedup_native_low", "speedup_native_high"),
        "speedup_native_more_repeats",
    }
    assert NATIVE.answers == ("consistency_native",)
    assert set(registry.of_the_cell()) == {
        *("speedup_low", "speedup_high", "speedup_native_low", "speedup_native_high"),
        *("speedup_matched_low", "speedup_matched_high"),
        *("speedup_more_repeats", "speedup_native_more_repeats"),
        *(f"speedup_{part}_low" for part in ("steps", "step_time", "length")),
        *(f"speedup_{part}_high" for part in ("steps", "step_time", "length")),
    }
    assert set(registry.unequal_work()) == {
        *("throughput_ratio", "request_per_s", "goodput_req_per_s", "good_and_right_per_s"),
        *(f"e2e_s_{suffix}" for suffix in ("p50", "p95", "p99", "mean")),
    }


def test_names_are_unique_and_entries_are_whole() -> None:
    keys = [key for metric in registry.METRICS for key in metric.keys]
    assert [key for key, count in collections.Counter(keys).items() if count > 1] == []
    for metric in registry.METRICS:
        assert metric.text.endswith("."), metric.name
        assert metric.section in get_args(Section)
        units = {"_s": "s", "_bytes": "bytes", "_tok_per_s": "tokens/s", "_req_per_s": "requests/s"}
        suffix = re.search(r"(_(tok|req)_per_s|(?<!_per)_s|_bytes)$", metric.name)
        assert metric.unit == units.get(suffix[0], "") if suffix else True, metric.name


def test_the_tables_of_the_doc_are_those_of_the_registry() -> None:
    doc = DOC.read_text(encoding="utf-8")
    assert doc == rewritten(doc), "run: python -m results.registry docs/metrics.md"
    for metric in registry.METRICS:
        assert f"| `{metric.name}`" in doc


def test_a_doc_without_one_of_the_tables_is_refused() -> None:
    doc = DOC.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected each of .*'rates'"):
        rewritten(doc.replace("<!-- table: rates -->", ""))


def test_the_command_brings_a_doc_up_to_date(tmp_path: Path) -> None:
    doc = DOC.read_text(encoding="utf-8")
    stale = tmp_path / "metrics.md"
    stale.write_text(doc.replace("| `ttft_s`", "| `old_s`"), encoding="utf-8")
    command = [sys.executable, "-m", "results.registry"]
    subprocess.run([*command, str(stale)], check=True, cwd=ROOT)
    assert stale.read_text(encoding="utf-8") == doc
    printed = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout
    assert metrics_table("time") in printed


@pytest.mark.parametrize(
    ("value", "kept"),
    [(np.int64(3), 3), (float("nan"), None), (np.float32("inf"), None), ("a", "a")],
)
def test_a_value_is_as_json_holds_it(value: Any, kept: Any) -> None:
    assert summary._plain(value) == kept
    assert not isinstance(summary._plain(value), np.generic)


@pytest.mark.parametrize(
    "files",
    ["harness/measure/checks.py", "harness/measure/machine/noise.py", "results/compare/*.py"],
)
def test_every_reason_that_is_given_is_explained(files: str) -> None:
    """Read from the source: texts that begin with a slug. Of two reasons it stands after a name."""
    trees = [ast.parse(source.read_text()) for source in ROOT.glob(files)]
    found = [
        re.match(r"(failures|[a-z]+(?:-[a-z]+)+): ?", node.value)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    given = {match[1] for match in found if match}
    assert len(given) > 2
    assert {slug for slug in given if not any(r.slug.endswith(slug) for r in REASONS)} == set()
    assert all(f"| `{reason.slug}` | {reason.text} |" in reasons_table() for reason in REASONS)


def test_vllm_bench_stands_beside_ours(tmp_path: Path) -> None:
    """Due at 100 and sent at 103 ms; chunks of 2 and 1 tokens at 110 and 130 ms."""
    late = generation("a", [110, 130], [2, 1], scheduled_ms=100, submitted_ms=103)
    dead = record(trial("dead"), [], status="failed", error="boom")
    run = run_of(tmp_path, record(trial("fast"), [late]), dead)
    both = run.trials.merge(run.vllm_bench, on="key")
    assert both["backend"].tolist() == ["fast"]
    ours, theirs = both[["ttft_s_p50", "tpot_s_p50"]], both[["median_ttft_ms", "median_tpot_ms"]]
    assert ours.to_numpy().tolist() == [pytest.approx([0.010, 0.020])]
    assert theirs.to_numpy().tolist() == [pytest.approx([7.0, 10.0])]
    assert "request_goodput" not in both, "there is no objective"
    names = ["key", "variant", "label", "valid"]
    assert list(run_of(tmp_path / "none", dead).vllm_bench.columns) == names


def test_first_divergence_has_one_place(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        record(stored_runs.REFERENCE, [answer(10, [1, 2, 3], "a"), answer(10, [1, 2, 3], "b")]),
        record(trial("fast"), [answer(10, [1, 2, 4], "a"), answer(10, [1, 5, 3], "b")]),
    )
    row = of(summaries(run), "fast")
    told = [row[n] for n in ("first_divergence", "first_divergence_request")]
    assert told == [1, "b"]
    assert row["first_divergence_mean"] == 1.5
    assert row["first_divergence_margin"] is None


@pytest.mark.parametrize("name", ["overhead_share", "draft_share"])
def test_no_metric_is_said_to_be_told_on_a_cpu_only(name: str) -> None:
    """Our own engine tells it wherever it computes; vLLM's calls are watched on a CPU alone."""
    assert "on a CPU only" not in registry.find(name).text
    assert "of vLLM in this process on a CPU alone" in registry.find("overhead_share").text
