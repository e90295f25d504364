"""Kernels run natively where there is CUDA, else through Triton's interpreter, which must be chosen
before Triton is imported: then this folder's tests run in a child process of their own
(test_interpreted.py), so that tests that import Triton for other reasons are not disturbed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
NATIVE = torch.cuda.is_available()

PARENT_ONLY = ["test_interpreted.py", "test_compiled.py", "cuda_only/*.py", "test_ceilings.py"]
"""What starts a child process, needs no Triton, or skips, which only the parent's summary shows."""

collect_ignore_glob = [] if NATIVE or INTERPRETED else ["ops/*.py", "drafts/*.py", "test_cuda_*.py"]
if INTERPRETED:
    collect_ignore_glob += [*PARENT_ONLY, "test_native_*.py"]


if INTERPRETED:
    from tests.support.kernels.quick_interpreter import quicken

    quicken()


@pytest.fixture(autouse=True)
def _prompts_in_small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes seconds for calls of 128 rows."""
    if INTERPRETED:
        monkeypatch.setattr("backends.engine.executors.cuda_calls.prompts.PROMPT_ROWS", 8)


@pytest.fixture(autouse=True)
def _numbers_as_on_a_gpu() -> Iterator[None]:
    """The interpreter computes in numpy, which warns where a GPU goes on with inf or NaN."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        yield
