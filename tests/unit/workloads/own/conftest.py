"""A tokenizer with a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_llama import write_tiny_llama

TEMPLATE = (
    "<s>{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("chat"))


@pytest.fixture
def chat_tokenizer(folder: Path) -> Any:
    """A real tokenizer; each test may change its template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    return tokenizer
