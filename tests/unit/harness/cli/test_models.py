"""Shapes, and several models in one experiment, from the command line on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import results
from harness.cli import doctor, wiring
from harness.cli import run as running
from harness.cli.display import print_plan
from harness.cli.folders import run_folder
from harness.core.errors import UserError
from harness.core.nouns import Model
from harness.experiment.config import parse_experiment
from harness.measure.machine import gpu, meters
from results.rows import summaries
from results.store.folder import Store
from tests.support.small_shapes import small_shape

MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
QUICK = {"name": "scripted", "ttft_s": 0.002, "itl_s": 0.001, "tokens": 4}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # measuring the machine's ceilings takes ten seconds in each empty cache
    monkeypatch.setattr(doctor, "measure_apart", lambda: None)


def content(model: Any, **changes: Any) -> dict[str, Any]:
    return {
        "name": "sizes",
        "model": model,
        "backends": [QUICK],
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 2}],
        "requests": 2,
        **changes,
    }


def resolved(model: Any, **changes: Any) -> Any:
    return wiring.resolve(parse_experiment(content(model, **changes), "f.yaml", wiring.known()))


def run(folder: Path, model: Any, shapes: tuple[str, ...] = (), fresh: bool = False) -> list[str]:
    """Run into folder/run; the models that the stored experiment lists afterwards."""
    (folder / "f.yaml").write_text(yaml.safe_dump(content(model)))
    running.run_experiment(
        folder / "f.yaml", out=folder / "run", only=None, fresh=fresh, dry_run=False, shapes=shapes
    )
    listed = Store(folder / "run").read_experiment()["model"]
    return [Model(**m).label() for m in (listed if isinstance(listed, list) else [listed])]


def shown(folder: Path) -> list[str]:
    return sorted(row["model"] for row in summaries(results.load(folder / "run")))


def test_shapes_from_the_command_line_join_what_the_folder_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = small_shape(tmp_path / "small").name
    other = small_shape(tmp_path / "other", vocab_size=2048).name
    assert run(tmp_path, "demo") == ["demo"]
    assert run(tmp_path, "demo", (small, other, small)) == ["demo", small, other]
    assert shown(tmp_path) == sorted(["demo", small, other])
    assert run(tmp_path, "demo") == ["demo", small, other], "the shapes have not gone"
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("trials:")]
    assert "1 stored" in told[-1]
    again = parse_experiment(Store(tmp_path / "run").read_experiment(), "x", wiring.known())
    assert [m.label() for m in wiring.resolve(again).models] == ["demo", small, other]
    assert len(again.trials()) == len(results.load(tmp_path / "run").stored)


def test_models_that_stay_keep_the_order_of_the_stored_experiment(tmp_path: Path) -> None:
    small, other = (small_shape(tmp_path / name).name for name in ("a", "b"))
    run(tmp_path, "demo", (small, other))
    store = Store(tmp_path / "run")
    for shapes in ([small, other], [other, small]):  # one of them is not how they were run
        stored = store.read_experiment()
        stored["model"] = sorted(stored["model"], key=lambda m: shapes.index(m["name"]))
        store.write_experiment(yaml.safe_dump(stored))
        assert run(tmp_path, "demo") == ["demo", *shapes]
        store.write_experiment(yaml.safe_dump(stored))


def test_only_shapes_are_run_and_only_they_are_listed(tmp_path: Path) -> None:
    small = small_shape(tmp_path / "small").name
    assert run(tmp_path, "demo", (small,)) == [small], "no trial of demo is missing"
    assert run(tmp_path, "demo") == ["demo", small]


def test_another_model_in_the_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    run(tmp_path, "demo")
    assert run(tmp_path, "demo-draft") == ["demo-draft"]


def test_fresh_with_a_shape_forgets_that_one_alone(tmp_path: Path) -> None:
    small = small_shape(tmp_path / "small").name
    run(tmp_path, "demo", (small,))
    run(tmp_path, "demo")
    store = Store(tmp_path / "run")
    with run_folder.forgetting(store, True, None, (Model(small, shape=True),)):
        assert shown(tmp_path) == ["demo"]
    assert run(tmp_path, "demo", (small,), fresh=True) == ["demo", small]
    assert shown(tmp_path) == sorted(["demo", small])


def test_an_unknown_shape_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"shape '0.5': .*did you mean '0.5b'\?"):
        run(tmp_path, "demo", ("0.5",))
    assert not (tmp_path / "run").exists()


def test_a_plan_names_the_models_where_there_are_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = small_shape(tmp_path)
    print_plan(resolved({"shape": small.name, "layers": [1, 2]}).trials(), lambda trial: "")
    assert f"{small.name}, 1 layer  gsm8k" in capsys.readouterr().out
    print_plan(resolved({"shape": small.name, "layers": 2}).trials(), lambda trial: "")
    assert small.name not in capsys.readouterr().out


def test_what_no_memory_can_hold_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "total_memory", lambda: 12 * 2**30)
    line = (
        r"model 'llama-3.1-8b': needs 15.0 GiB for its weights in bfloat16 and about 1.5 GiB "
        r"beside them, and this machine has 12.0 GiB of memory; fewer 'layers' need less"
    )
    with pytest.raises(UserError, match=line):
        resolved({"shape": "llama-3.1-8b"}, backends=["autoregressive"], dtype="bfloat16")
    with pytest.raises(UserError, match=r"29.9 GiB for its weights in float32 .*; fewer 'layers'"):
        resolved({"shape": "llama-3.1-8b"}, backends=["autoregressive"], dtype="float32")
    half = {"shape": "llama-3.1-8b", "layers": 15}
    with pytest.raises(UserError, match=r"; 'dtype: bfloat16' needs 8\.1 GiB, fewer 'layers'"):
        resolved(half, backends=["autoregressive"], dtype="float32")
    monkeypatch.setattr(gpu, "memory_total", lambda: [80 * 2**30, 10 * 2**30])
    with pytest.raises(UserError, match=r"has 10\.0 GiB of GPU memory"):
        resolved({"shape": "llama-3.1-8b"}, backends=["autoregressive"], dtype="bfloat16")
    assert not (tmp_path / "cache").exists()


def test_a_kv_cache_and_a_draft_model_need_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "total_memory", lambda: 12 * 2**30)
    small, cache = {"shape": "0.1b"}, {"name": "vllm", "kv_cache_gib": 40}
    line = (
        r"needs 0\.2 GiB for its weights in bfloat16, 39\.5 GiB for KV beyond 0\.5 \(backend "
        r"'vllm': kv_cache_gib\) and about 1\.5 GiB beside .* of memory; "
        r"a smaller 'kv_cache_gib' needs less$"
    )
    with pytest.raises(UserError, match=line):
        resolved(small, backends=[cache, {"name": "vllm", "kv_cache_gib": 1}], dtype="bfloat16")
    large = {"shape": "llama-3.1-8b", "layers": 20}
    drafts = {"name": "speculative", "replay": {"acceptance": 0.5}}
    line = (
        r"for its weights in bfloat16, 2\.3 GiB for the draft model llama-3\.2-1b \(backend 'spec"
    )
    with pytest.raises(UserError, match=line):
        resolved(large, backends=["vllm", drafts], dtype="bfloat16")
    with pytest.raises(
        UserError, match=r"may take 1 GiB and holds"
    ):  # room for it, and none on the disk
        resolved(large, backends=["vllm"], dtype="bfloat16", limits={"cache_gib": 1})


def test_what_only_leaves_out_needs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "total_memory", lambda: 12 * 2**30)
    unfit = {"name": "adadecode", "replay": {"exits": {"0.5": 0.5}}, "max_model_len": 32}
    engines = ["autoregressive", {"name": "vllm", "kv_cache_gib": 40}]
    small = small_shape(tmp_path, num_hidden_layers=1)
    (tmp_path / "f.yaml").write_text(
        yaml.safe_dump(
            content({"shape": small.name}, backends=[*engines, unfit], reference="autoregressive")
        )
    )

    def plan(only: str | None) -> None:
        running.run_experiment(
            tmp_path / "f.yaml", out=tmp_path / "run", only=only, fresh=False, dry_run=True
        )

    plan("autoregressive")
    with pytest.raises(UserError, match=r"kv_cache_gib"):
        plan("vllm")
    with pytest.raises(UserError, match=r"1 layer has no exit"):
        plan("adadecode")
    with pytest.raises(UserError, match=r"kv_cache_gib"):
        plan(None)


def test_the_cache_may_grow_to_what_the_experiment_allows(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"may take 1 GiB and holds 0\.00; 'decodebench cache clear"
    ):
        resolved({"shape": "1b"}, limits={"cache_gib": 1})


def test_tokenizers_that_give_other_rows_are_refused_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where an option counts tokens: else all models are asked the same."""
    small = small_shape(tmp_path / "small")
    counting = [{"name": "xsum", "article_limit": 300, "max_article_tokens": 60}]
    models = ["demo", {"shape": small.name}]
    assert len(resolved(models, workloads=counting).models) == 2
    other = tmp_path / "other"
    other.mkdir()
    demo = wiring.model_folder(Model("demo"))
    for path in demo.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:20]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert len(resolved(["demo", str(other)]).models) == 2
    with pytest.raises(UserError, match=r"its option counts tokens, and the tokenizers of .* and "):
        resolved(["demo", str(other)], workloads=counting)


def test_weights_of_what_a_backend_does_not_load_count_nothing(tmp_path: Path) -> None:
    small = small_shape(tmp_path)
    experiment = resolved({"shape": small.name}, backends=["scripted", "autoregressive"])
    scripted, own = experiment.trials()
    assert wiring.weight_bytes(scripted) == 0
    assert wiring.weight_bytes(own) > 2 * 1536 * 64


@pytest.mark.parametrize(
    ("backend", "changes", "said"),
    [
        ("autoregressive", {"head_dim": 24}, "head_dim 24: the native kernels need"),
        ("autoregressive", {"sliding_window": 64, **MISTRAL}, "sliding_window: is 64; expected"),
        ("scripted", {"layer_types": ["other"] * 4}, "Class validation error .*layer_type"),
        ("adadecode", {}, "random weights"),
    ],
)
def test_what_a_backend_does_not_take_is_refused_before_it_is_made(
    tmp_path: Path, backend: str, changes: dict[str, Any], said: str
) -> None:
    """In one line, which names the user's file where it is at fault."""
    small = small_shape(tmp_path, **changes)
    where = f"{small.name}: .*" if changes else ""
    with pytest.raises(UserError, match=f"{where}{said}") as refused:
        resolved({"shape": small.name}, backends=[backend, "vllm"])
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "cache" / "decodebench" / "shapes").exists()
