"""What a process was started with that changes its speed: what is told of it, and what never is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.measure.machine import tuning
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.machine.tuning import variables

ROOT = Path(__file__).parents[5]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_NUM_THREADS", "1"),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
        ("GOMP_CPU_AFFINITY", "0-3"),
        ("MKL_NUM_THREADS", "2"),
        ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
        ("OPENBLAS_NUM_THREADS", "2"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2"),
        ("VLLM_USE_V2_MODEL_RUNNER", "0"),
        ("VLLM_KV_CACHE_LAYOUT", "HND"),
        ("VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD", "64"),
        ("VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE", "163840"),
        ("TORCH_COMPILE_DISABLE", "1"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("NVIDIA_TF32_OVERRIDE", "0"),
        ("NCCL_P2P_DISABLE", "1"),
        ("TRITON_INTERPRET", "1"),
        ("MALLOC_ARENA_MAX", "1"),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("PYTHONMALLOC", "debug"),
    ],
)
def test_what_changes_speed_is_told_and_pinned(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delitem(tuning.STARTED_WITH, name, raising=False)
    before = fingerprint(environment())
    monkeypatch.setitem(tuning.STARTED_WITH, name, value)
    assert environment()["variables"][name] == value
    assert fingerprint(environment()) != before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", "sesame"),
        ("VLLM_S3_ACCESS_KEY_ID", "sesame"),
        ("VLLM_S3_SECRET", "sesame"),
        ("VLLM_HF_TOKEN", "sesame"),
        ("VLLM_TOKEN_OF_MINE", "sesame"),
        ("TORCH_HUB_PASSWORD", "sesame"),
        ("VLLM_HOST_IP", "10.0.0.3"),
        ("VLLM_PORT", "8000"),
        ("VLLM_CACHE_ROOT", "sesame"),
        ("TORCH_HOME", "sesame"),
        ("VLLM_ANYTHING", "https://me:sesame@example.org"),
        ("TORCHINDUCTOR_CACHE_DIR", "sesame"),
        ("OMP_PLACE_OF_MINE", "/home/me"),
        ("HF_TOKEN", "sesame"),
        ("OPENAI_API_KEY", "sesame"),
        ("PYTHONPATH", "sesame"),
        ("PATH_OF_OMP_", "sesame"),
        ("OMP_NUM_THREADS", " "),
    ],
)
def test_secrets_places_and_addresses_are_never_told(name: str, value: str) -> None:
    assert variables({name: value}) == {}


def test_of_preloaded_libraries_the_names_count() -> None:
    told = variables({"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4:/home/me/libx.so /opt/y.so"})
    assert told == {"LD_PRELOAD": "libtcmalloc.so.4 libx.so y.so"}
    assert variables({"LD_PRELOAD": ""}) == {}


def test_the_order_of_variables_does_not_matter() -> None:
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "2"}
    assert list(variables(one)) == list(variables(dict(reversed(one.items()))))


def test_variables_count_as_they_were_at_the_start() -> None:
    """vLLM sets some when it is imported, which a resumed run may have no reason to do."""
    code = (
        "import os; from harness.measure.machine.environment import environment; "
        "os.environ['TORCHINDUCTOR_COMPILE_THREADS'] = '1'; print(environment()['variables'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "7"},
    )
    assert done.stdout.strip() == "{'OMP_NUM_THREADS': '7'}"


def test_cores_and_priority_are_those_of_the_process() -> None:
    """Asked in a process of its own, on one core and at the end of the queue."""
    code = (
        "import json, os; os.sched_setaffinity(0, [max(os.sched_getaffinity(0))]); os.nice(5); "
        "from harness.measure.machine.environment import environment;"
        "print(json.dumps(environment()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    found, here = json.loads(done.stdout), environment()
    assert found["affinity"] == str(max(os.sched_getaffinity(0)))
    assert found["niceness"] == min(here["niceness"] + 5, 19)
    assert found["cores"] == 1


def test_cores_are_told_as_ranges() -> None:
    assert tuning._ranges({0, 1, 2, 3}) == "0-3"
    assert tuning._ranges({9, 0, 2, 3, 11, 10}) == "0,2-3,9-11"


def test_the_gpus_that_were_given_are_told_and_pin_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler gives this one and then that one; their kinds stand with the machine."""
    found = []
    for given in ("0", "3"):
        for name, value in (("CUDA_VISIBLE_DEVICES", given), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")):
            monkeypatch.setitem(tuning.STARTED_WITH, name, value)
            monkeypatch.setenv(name, value)
        here = environment()
        assert here["gpu_variables"] == {
            "CUDA_VISIBLE_DEVICES": given,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        assert not here["variables"].keys() & here["gpu_variables"].keys()
        found.append(fingerprint(here))
    assert found[0] == found[1]
