"""Drafts through the command: recorded on the demo model, a trace, replayed on a shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.harness.command import here, printed, refused, rows_of
from tests.support.own_cache import own_cache
from tests.support.small_shapes import small_shape

pytestmark = pytest.mark.slow
COMMON = {
    "dtype": "bfloat16",
    "reference": "autoregressive",
    "workloads": [{"name": "gsm8k", "max_new_tokens": 40}],
    "load": [{"kind": "closed", "concurrency": 2}],
    "requests": 5,
    "repeats": 1,
}
DRAFTING = {"name": "speculative", "drafts": 4}


def rows(folder: Path, name: str, experiment: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The run's rows by backend."""
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, **COMMON, **experiment}))
    printed("run", folder / f"{name}.yaml", "--out", folder / name, "--again-share", "0")
    return {row["backend"]: row for row in rows_of(folder / name)}


def test_what_was_recorded_on_the_demo_model_is_replayed_on_a_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cache(monkeypatch, tmp_path / "cache")
    backends = ["autoregressive", {**DRAFTING, "record": True}]
    real = rows(tmp_path, "real", {"model": "demo", "backends": backends})["speculative"]
    trace = str(tmp_path / "trace")
    told = here("trace", tmp_path / "real", "--backend", "speculative", "--out", trace)
    assert told.stdout == f"trace: {trace}: 5 requests of speculative\n"
    assert told.stderr == ""
    shape = small_shape(tmp_path / "shape").name
    backends = [{"name": "autoregressive", "replay": trace}, {**DRAFTING, "replay": trace}]
    again = rows(tmp_path, "again", {"model": {"shape": shape}, "backends": backends})
    found = again["speculative"]
    for name in ("drafts_by_position", "drafts_per_step", "acceptance_rate", "tokens_per_step"):
        assert found[name] == real[name], name
    assert (
        found["output_tokens"] == real["output_tokens"] == again["autoregressive"]["output_tokens"]
    )
    assert found["provenance"] == "measured cost, replayed decisions"
    assert found["speedup"] > 0, "paired with plain decoding of as many tokens"
    assert (found["consistency_ratio"], found["exact_match"]) == (None, None)
    assert 0 < found["draft_share"] < 1
    assert here("report", tmp_path / "again").returncode == 0
    page = (tmp_path / "again" / "report.html").read_text()
    assert "decisions were replayed" in page.lower()

    backends = [{**DRAFTING, "replay": trace}]
    other = {"model": {"shape": shape}, "backends": backends, "workloads": ["xsum"]}
    path = tmp_path / "other.yaml"
    path.write_text(
        yaml.safe_dump({"name": "other", **COMMON, "reference": "speculative", **other})
    )
    told_off = refused("run", path, "--out", tmp_path / "other")
    assert "the trace has no request of workload 'xsum'" in told_off
    assert len(told_off.strip().splitlines()) == 1
