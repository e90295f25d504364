"""What a trial's key pins, tried on a copy of our own tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backends import BACKENDS
from backends.vllm import backend as vllm
from harness.cli.pins import (
    PINNED_OTHERWISE,
    PROGRAMS,
    SCORED_AS_PROGRAMS,
    Pins,
)
from harness.core.closure import ROOT, Sources
from harness.core.nouns import Model, Trial, Workload
from tests.support.harness.sessions import make_trial
from tests.support.harness.source_tree import copy_sources
from workloads import WORKLOADS, scoring
from workloads.sandbox import runner

OWN = {"autoregressive", "adadecode", "own-early-exit", "speculative", "tetris"}
VLLM = {"vllm", "vllm-early-exit", "vllm-speculative"}
EXITS = {"own-early-exit", "tetris", "vllm-early-exit"}
"""They share a package, whose entry point for vLLM names the plugin."""
ALL = set(BACKENDS)


def trial(backend: str, workload: str = "gsm8k") -> Trial:
    """Options as plain as they can be, so that no file is read."""
    options = {name: {"calibration": "none"} for name in EXITS} | {
        "adadecode": {"heads": "original"}
    }
    return replace(
        make_trial(),
        backend=backend,
        model=Model("demo"),
        workload=Workload(workload),
        options=options.get(backend, {}),
    )


def keys(sources: Sources) -> dict[str, str]:
    pins = Pins(sources)
    return {name: pins.of(trial(name)) for name in BACKENDS}


@dataclass(frozen=True)
class SourceTree:
    """A copy of our sources, as it was read before any edit, and the keys that it gave."""

    root: Path
    sources: Sources
    before: dict[str, str]

    def edited(self, name: str, edit: Callable[[str], str]) -> set[str]:
        """The backends whose keys differ with one file edited; it is put back."""
        path = self.root / name
        text = path.read_text()
        sources = Sources(self.root)
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        sources._modules.update(self.sources._modules)  # to read the others again takes long
        sources._modules.pop(module, None)
        path.write_text(edit(text))
        try:
            after = keys(sources)
        finally:
            path.write_text(text)
        return {backend for backend in after if after[backend] != self.before[backend]}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> SourceTree:
    root = copy_sources(tmp_path_factory.mktemp("tree"))
    sources = Sources(root)
    return SourceTree(root, sources, keys(sources))


@pytest.mark.parametrize(
    ("name", "concerned"),
    [
        ("harness/measure/load_loop.py", ALL),
        ("harness/measure/checks.py", ALL),
        ("harness/measure/child.py", ALL),
        ("harness/measure/machine/meters.py", ALL),
        ("harness/measure/machine/scheduling.py", ALL),
        ("harness/cli/session.py", ALL),
        ("harness/core/nouns.py", ALL),
        ("harness/core/processes/piped.py", ALL),
        ("workloads/scoring.py", ALL),
        ("workloads/prompts.py", ALL),
        ("workloads/arrivals.py", ALL),
        ("workloads/measured.py", ALL),
        ("backends/__init__.py", ALL),
        ("backends/vllm/arguments.py", VLLM),
        ("backends/vllm/norm.py", VLLM),
        ("backends/early_exit/plugin/model.py", EXITS),
        ("backends/early_exit/plugin/scheduler.py", {"vllm-early-exit"}),
        ("backends/early_exit/fill/paged.py", EXITS),
        ("backends/early_exit/calibration/calibrate.py", set()),
        ("backends/own/backend.py", OWN),
        ("backends/own/adadecode.py", {"adadecode"}),
        ("backends/own/exits/rule.py", {"own-early-exit", "tetris"}),
        ("backends/early_exit/policy.py", EXITS),
        ("backends/early_exit/options.py", {"vllm-early-exit"}),
        ("backends/engine/decoder.py", OWN - {"tetris"}),
        ("backends/engine/executors/cuda.py", OWN),
        ("backends/engine/costs/exit_choice.py", OWN - {"autoregressive", "tetris"}),
        ("backends/engine/drafters/adaptive.py", {"speculative"}),
        ("backends/engine/drafters/counts.py", OWN | {"vllm-speculative"}),
        ("backends/vllm/speculative.py", {"vllm-speculative"}),
        ("backends/http/stamps.py", {"http"}),
        ("backends/http/workers.py", {"http"}),
        ("backends/scripted.py", {"scripted"}),
        ("backends/training/heads/train.py", set()),
        ("backends/pins.py", set()),
        ("workloads/datasets.py", set()),
        ("workloads/bundled/news.py", {"tetris-classifier"}),
        ("workloads/sandbox/child.py", set()),
        ("harness/measure/sweep.py", set()),
        ("harness/measure/engine_process.py", ALL),
        ("harness/cli/display.py", set()),
        ("harness/cli/wiring.py", set()),
        ("harness/cli/doctor.py", set()),
        ("harness/cli/pins.py", set()),
        ("harness/experiment/config.py", set()),
        ("results/run.py", set()),
        ("reports/page.py", set()),
    ],
)
def test_an_edit_runs_again_what_it_concerns_and_nothing_else(
    tree: SourceTree, name: str, concerned: set[str]
) -> None:
    assert tree.edited(name, lambda text: text + "\nEDITED = 1\n") == concerned


def test_the_kernels_in_cpp_concern_whom_they_are_compiled_for(tree: SourceTree) -> None:
    name, concerned = "backends/kernels/cpu/fill.h", OWN | {"vllm-early-exit"}
    assert tree.edited(name, lambda text: text + "\nint edited;\n") == concerned
    assert tree.edited(name, lambda text: text + "\n// why\n") == set()


@pytest.mark.parametrize("name", ["harness/measure/load_loop.py", "backends/own/backend.py"])
def test_a_comment_runs_nothing_again(tree: SourceTree, name: str) -> None:
    assert tree.edited(name, lambda text: f'{text}\n# A comment.\n"""A docstring."""\n') == set()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("backends/__init__.py", '"vllm": "backends.vllm.backend:VllmBackend",'),
        ("workloads/__init__.py", '"xsum": WorkloadInfo('),
    ],
)
def test_one_backend_or_workload_more_runs_nothing_again(
    tree: SourceTree, name: str, line: str
) -> None:
    assert line in (tree.root / name).read_text()
    longer = f'"another": "backends.other:Other", {line}'
    assert tree.edited(name, lambda text: text.replace(line, longer)) == set()


def test_the_own_line_of_a_registry_is_pinned(
    tree: SourceTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(text: str) -> str:
        return text

    monkeypatch.setattr(vllm, "OtherClass", vllm.VllmBackend, raising=False)
    monkeypatch.setitem(BACKENDS, "vllm", "backends.vllm.backend:OtherClass")
    assert tree.edited("backends/__init__.py", same) == {"vllm"}
    other = replace(WORKLOADS["gsm8k"], fields=("question", "other"))
    monkeypatch.setitem(WORKLOADS, "gsm8k", other)
    assert tree.edited("backends/__init__.py", same) == ALL


def parts(tree: SourceTree, backend: str, workload: str) -> dict[str, str]:
    return Pins(tree.sources).parts(trial(backend, workload))


def test_the_sandbox_is_pinned_for_programs_alone(tree: SourceTree) -> None:
    read = {name.replace("sandbox_", "workloads/sandbox/") for name, _ in runner._child_modules()}
    sandbox = {f"{name}.py" for name in read} | {
        "workloads/completions.py",
        "workloads/sandbox/policy.py",
        "workloads/sandbox/runner.py",
    }
    assert sandbox <= parts(tree, "scripted", "humaneval").keys()
    for workload in WORKLOADS.keys() - SCORED_AS_PROGRAMS.keys():
        assert not [name for name in parts(tree, "scripted", workload) if "sandbox" in name]
        assert "workloads/scoring.py" in parts(tree, "scripted", workload)


def test_no_other_workload_is_scored_by_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("scored as a program")

    names = [name for name, value in vars(scoring).items() if from_any(value, PROGRAMS)]
    assert "pass_at_1" in names
    for name in names:
        monkeypatch.setattr(scoring, name, refuse)
    for workload in WORKLOADS.keys() - SCORED_AS_PROGRAMS.keys():
        row = dict.fromkeys(WORKLOADS[workload].fields, "#### 42")
        assert scoring.score_all(workload, [row], ["#### 42"]) != [{}]
    with pytest.raises((AssertionError, SyntaxError)):
        scoring.score_all("humaneval", [dict.fromkeys(WORKLOADS["humaneval"].fields, "f")], ["x"])


def from_any(value: object, modules: tuple[str, ...]) -> bool:
    return any(f"{getattr(value, '__module__', '')}.".startswith(f"{m}.") for m in modules)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_no_module_that_a_text_names_is_missing(tree: SourceTree, backend: str) -> None:
    """Read apart from `Sources`: every text of every pinned file, registries aside."""
    found = parts(tree, backend, "humaneval")
    modules = {name.removesuffix(".py").replace("/", ".") for name in found}
    named = set()
    for name in (name for name in found if name.endswith(".py")):
        nodes = [*ast.walk(ast.parse((tree.root / name).read_text()))]
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and id(node) not in docstrings:
                named.update(
                    re.findall(r"\b(?:backends|harness|workloads)\.[\w.]+", str(node.value))
                )
    others = {target.partition(":")[0] for target in BACKENDS.values()}
    there = {name for name in named if (tree.root / f"{name.replace('.', '/')}.py").is_file()}
    assert there - others <= modules
    if backend == "vllm-early-exit":
        assert "backends.early_exit.plugin.model" in there & modules


def test_what_pins_itself_is_pinned(tree: SourceTree) -> None:
    """Rows have a checksum in the trial, which every child compares (`workloads.measured`)."""
    found = parts(tree, "scripted", "gsm8k")
    assert "workloads/measured.py" in found
    assert not {f"{name.replace('.', '/')}.py" for name in PINNED_OTHERWISE} & found.keys()


def test_an_installation_has_the_keys_of_the_checkout(tree: SourceTree) -> None:
    """No git, another folder: what counts is below the packages."""
    assert keys(Sources(ROOT)) == tree.before
