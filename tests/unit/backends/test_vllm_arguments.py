"""The `vllm` backend's options, checked before any engine is started or even imported."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from backends import check_options
from harness.core import UserError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vllm is not installed"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": {"max_num_batched_token": 1}}, "did you mean 'max_num_batched_tokens'?"),
        ({"engine": {"foo": 1}}, "vLLM has no argument 'foo': nearest are "),
        ({"engine": {1: 2}}, "vLLM has no argument '1': nearest are "),
        ({"engine": {"trust_remote_code": True}}, "code from a checkpoint is never run"),
        ({"engine": {"max_num_seqs": 4}}, "max_num_seqs: an option of its own"),
        ({"engine": []}, "option 'engine': expected dict"),
        ({"max_num_seqs": 0}, "at least 1"),
        ({"max_model_len": "4k"}, "expected int"),
        ({"prefix_cachin": True}, "did you mean 'prefix_caching'?"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_options("vllm", options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_good_options_pass_without_importing_vllm() -> None:
    before = "vllm" in sys.modules
    check_options("vllm", {"engine": {"block_size": 32, "speculative_config": {"method": "ngram"}}})
    assert ("vllm" in sys.modules) == before
