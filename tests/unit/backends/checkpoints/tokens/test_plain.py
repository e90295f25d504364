"""A tokenizer without transformers answers as transformers' does, or is not used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.checkpoints.tokens.plain import PlainTokenizer, read_plain
from harness.core.errors import UserError
from tests.support.tiny_llama import EOS_ID, write_tiny_llama
from workloads import prompts
from workloads.own.synthetic import ordinary_ids

DEMO = models.BUNDLED["demo"]
TEXTS = [
    "",
    "How many apples? 12 + 3,456 = 15.",
    "def f(x):\n    return x  # twice\n\n\n\tend ",
    "<|user|>not a <|end|> template's</s> own<s>",
    "Gödel — naïve 東京 \U0001f600\r\n",
]
CHATS = [
    [{"role": "user", "content": "How many?"}],
    [
        {"role": "user", "content": "<b>One</b> & two"},
        {"role": "assistant", "content": " Three\n"},
        {"role": "user", "content": "Four"},
    ],
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """What a tokenizer is read from, to be changed."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, tmp_path)
    return tmp_path


@pytest.fixture(params=["demo", "tiny"], scope="module")
def both(request: pytest.FixtureRequest, tiny: Path) -> tuple[Any, Any]:
    folder = {"demo": DEMO, "tiny": tiny}[request.param]
    plain = models.prompt_tokenizer(folder)
    assert isinstance(plain, PlainTokenizer)
    return plain, models.load_tokenizer(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_texts_are_those_of_transformers(both: tuple[Any, Any], text: str) -> None:
    plain, theirs = both
    for special in (True, False):
        ids = plain.encode(text, add_special_tokens=special)
        assert ids == theirs.encode(text, add_special_tokens=special)
        for skip in (True, False):
            told = plain.decode(tuple(ids), skip_special_tokens=skip)
            assert told == theirs.decode(ids, skip_special_tokens=skip)


def test_every_id_is_the_same_text(both: tuple[Any, Any]) -> None:
    plain, theirs = both
    ids = range(plain.vocab_size + 8)
    assert [plain.decode([n]) for n in ids] == [theirs.decode([n]) for n in ids]


def test_what_is_asked_of_it_besides_is_the_same(both: tuple[Any, Any]) -> None:
    plain, theirs = both
    for name in ("eos_token_id", "bos_token_id", "vocab_size", "all_special_ids", "chat_template"):
        assert getattr(plain, name) == getattr(theirs, name), name
    assert ordinary_ids(plain) == ordinary_ids(theirs)
    assert plain.get_vocab() == theirs.get_vocab()
    assert prompts.has_template(plain) == prompts.has_template(theirs)


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize(
    "template",
    [
        None,
        "{% for m in messages %}\n  {{ m | tojson }}{{ m['content'] | tojson(indent=1) }}\n"
        "{% if loop.index > 1 %}{% break %}{% endif %}\n{% endfor %}{{ bos_token }}{{ nothing }}"
        "{{ strftime_now('%Y') }}{% if tools is none and add_generation_prompt %}!{% endif %}",
    ],
)
def test_chats_are_laid_out_as_by_transformers(
    demo: Path, chat: list[dict[str, str]], template: str | None
) -> None:
    if template is not None:
        change(demo, chat_template=template)
    plain, theirs = read_plain(demo), models.load_tokenizer(demo)
    assert plain is not None
    for more in (True, False):
        given: dict[str, Any] = {
            "tokenize": False,
            "add_generation_prompt": more,
            "strftime_now": lambda form: f"({form})",
        }
        told = plain.apply_chat_template(chat, **given)
        assert told == theirs.apply_chat_template(chat, **given)


def test_a_template_that_refuses_is_one_line(demo: Path) -> None:
    change(demo, chat_template="{{ raise_exception('no users') }}")
    assert read_plain(demo) is not None
    with pytest.raises(UserError, match="cannot take a user's message: no users"):
        models.prompt_tokenizer(demo)


@pytest.mark.parametrize(
    "changed",
    [
        {"tokenizer_class": "LlamaTokenizer"},
        {"tokenizer_class": None},
        {"add_bos_token": True},
        {"extra_special_tokens": ["<x>"]},
        {"clean_up_tokenization_spaces": True},
        {"eos_token": {"content": "<|end|>", "__type": "AddedToken"}},
        {"eos_token": "<|of another vocabulary|>"},
        {"chat_template": [{"name": "default", "template": "x"}]},
        {"chat_template": "{%- generation %}x{% endgeneration %}"},
    ],
)
def test_what_only_transformers_reads_is_left_to_it(demo: Path, changed: dict[str, Any]) -> None:
    change(demo, **changed)
    assert read_plain(demo) is None


@pytest.mark.parametrize("family", ["phi3", "qwen2", None])
def test_so_are_families_for_which_it_takes_another_class(demo: Path, family: str | None) -> None:
    (demo / "config.json").write_text(json.dumps({"model_type": family}))
    assert read_plain(demo) is None


@pytest.mark.parametrize("name", ["special_tokens_map.json", "chat_template.jinja"])
def test_so_are_other_files(demo: Path, name: str) -> None:
    (demo / name).write_text("{}")
    assert read_plain(demo) is None


@pytest.mark.parametrize("part", ["truncation", "post_processor", "padding"])
def test_so_is_what_changes_every_text(demo: Path, part: str) -> None:
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_file(str(demo / "tokenizer.json"))
    if part == "truncation":
        tokenizer.enable_truncation(8)
    elif part == "padding":
        tokenizer.enable_padding(length=8)
    else:
        begin = ("<|begin|>", 1)
        tokenizer.post_processor = processors.TemplateProcessing("<|begin|> $A", None, [begin])
    tokenizer.save(str(demo / "tokenizer.json"))
    assert read_plain(demo) is None


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_broken_file_is_left_to_who_tells_of_it(demo: Path, name: str) -> None:
    (demo / name).write_text("[1, 2")
    assert read_plain(demo) is None


def test_an_answer_ends_where_it_did(tiny: Path) -> None:
    assert models.stop_ids(tiny, models.prompt_tokenizer(tiny)) == (EOS_ID,)


def change(folder: Path, **changed: Any) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
