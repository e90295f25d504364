"""The option `chat`: what prompts use of a model's chat template."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.names import chat_words
from harness.core.nouns import Load, Model, Trial, Workload
from tests.support.tiny_llama import write_tiny_llama
from workloads.chat import chat_of
from workloads.datasets import row_options
from workloads.measured import MeasuredPrompt, load_prompts, load_rows, rows_checksum
from workloads.own.chats import of_messages
from workloads.prompts import encode_prompt, instruction, plain_text, written_prompt

TEMPLATE = (
    "<s>{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
ROW = {"question": "What is 2 plus 2?", "answer": "#### 4"}
PLAIN = Workload("gsm8k")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(folder)
    found.chat_template = TEMPLATE
    return found


def asking(**chat: Any) -> Workload:
    return replace(PLAIN, options={"chat": chat})


def written(tokenizer: Any, workload: Workload, row: dict[str, str] = ROW) -> str:
    return written_prompt(tokenizer, workload.name, row, None, chat_of(workload)).text


def test_variables_reach_the_template(tokenizer: Any) -> None:
    plain = written(tokenizer, PLAIN)
    assert written(tokenizer, asking(template_kwargs={"enable_thinking": True})) == plain
    found = written(tokenizer, asking(template_kwargs={"enable_thinking": False}))
    assert found == f"{plain}<think>\n\n</think>\n\n"


def test_without_the_template_a_chat_model_reads_plain_text(tokenizer: Any) -> None:
    workload = asking(template="none")
    assert written(tokenizer, workload) == plain_text("gsm8k", ROW)
    ids = encode_prompt(tokenizer, "gsm8k", ROW, None, chat_of(workload))
    assert ids == tokenizer.encode(plain_text("gsm8k", ROW), add_special_tokens=True)


def test_a_system_message_goes_before_chats_that_have_none(tokenizer: Any) -> None:
    workload = asking(system="Be brief.")
    found = written_prompt(tokenizer, "gsm8k", ROW, None, chat_of(workload))
    assert found.messages == (("system", "Be brief."), ("user", instruction("gsm8k", ROW)))
    assert found.text.startswith("<s>[system] Be brief.\n[user] Solve")
    own = [{"role": "system", "content": "Be long."}, {"role": "user", "content": "Why?"}]
    chat = of_messages(own, "here")
    assert written(tokenizer, replace(workload, name="jsonl"), chat).startswith(
        "<s>[system] Be long.\n[user] Why?"
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no mapping": ({"chat": "none"}, "expected a mapping of template, template_kwargs, system"),
    "empty": ({"chat": {}}, "expected a mapping of template"),
    "key": ({"chat": {"sistem": "x"}}, "unknown key 'sistem'; did you mean 'system'?"),
    "template": ({"chat": {"template": "off"}}, "expected auto or none, got 'off'"),
    "ours": ({"chat": {"template_kwargs": {"tokenize": True}}}, "'tokenize' is set by decodebench"),
    "name": ({"chat": {"template_kwargs": {"a b": 1}}}, "names of the template's variables"),
    "value": ({"chat": {"template_kwargs": {"x": [1]}}}, "a number, true or false, got [1]"),
    "blank": ({"chat": {"system": " "}}, "key 'system': expected a text, got ' '"),
    "both": (
        {"chat": {"template": "none", "system": "x"}},
        "key 'system' is for the template, which 'none' leaves out",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("name", ["gsm8k", "jsonl"])
def test_what_it_cannot_be_is_one_line(name: str, options: dict[str, Any], message: str) -> None:
    source = "x.jsonl" if name == "jsonl" else "bundled"
    with pytest.raises(UserError) as raised:
        row_options(Workload(name, source, options=options))
    assert str(raised.value).startswith(f"workload {name}: option 'chat': ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["sentiment", "shapes", "synthetic"])
def test_prompts_that_are_no_chats_have_no_such_option(name: str) -> None:
    source = "generated" if name == "synthetic" else "bundled"
    with pytest.raises(UserError, match="unknown option 'chat'"):
        row_options(Workload(name, source, options={"chat": {"template": "none"}}))


def test_a_model_without_a_template_is_refused(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    for chat in ({"system": "x"}, {"template_kwargs": {"enable_thinking": False}}):
        with pytest.raises(UserError, match=r"workload gsm8k: .* tokenizer has no chat template"):
            written(tokenizer, asking(**chat))
    assert written(tokenizer, asking(template="none")) == plain_text("gsm8k", ROW)


def test_a_variable_that_the_template_does_not_read_is_refused(tokenizer: Any) -> None:
    """A template is silent on variables that it does not know."""
    with pytest.raises(UserError) as raised:
        written(tokenizer, asking(template_kwargs={"enable_thinkin": False}))
    assert str(raised.value).endswith(
        "does not read 'enable_thinkin'; did you mean 'enable_thinking'?"
    )


def prompts_of(workload: Workload, tokenizer: Any) -> list[MeasuredPrompt]:
    rows = load_rows(workload, 0, 2, tokenizer)
    pinned = replace(workload, checksum=rows_checksum(workload, rows))
    load = Load("closed", concurrency=1)
    return load_prompts(Trial("scripted", {}, Model("m"), pinned, load, 2, 8), tokenizer)


def test_measured_prompts_are_written_so_and_pinned(tokenizer: Any) -> None:
    plain = prompts_of(PLAIN, tokenizer)
    other = prompts_of(asking(template_kwargs={"enable_thinking": False}), tokenizer)
    assert [o.text for o in other] == [f"{p.text}<think>\n\n</think>\n\n" for p in plain]
    assert [len(o.token_ids) > len(p.token_ids) for o, p in zip(other, plain, strict=True)] == [
        True,
        True,
    ]
    rows = load_rows(PLAIN, 0, 2, None)
    sums = {rows_checksum(one, rows) for one in (PLAIN, asking(system="a"), asking(system="b"))}
    assert len(sums) == 3


def test_words_say_what_was_asked_for() -> None:
    assert chat_words({}) == ""
    assert chat_words({"chat": {"template": "none"}}) == "no chat template"
    chat = {"template_kwargs": {"enable_thinking": False, "effort": "low"}, "system": "Be brief."}
    assert chat_words({"chat": chat}) == 'enable_thinking=false, effort="low", system "Be brief."'
