"""Prompts: what a model is asked, how it is tokenised, and where the answer begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_llama import write_tiny_llama
from workloads import bundled, prompts

WORKLOADS = ["cnn_dailymail", "xsum", "humaneval", "gsm8k"]


class Letters:
    """A tokenizer whose tokens are code points, with 1 as its first token where asked."""

    eos_token_id = 2

    def __init__(self, chat_template: str | None = None) -> None:
        self.chat_template = chat_template

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [ord(c) for c in text]

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(chr(i) for i in ids if not (skip_special_tokens and i == 1))

    def apply_chat_template(
        self,
        messages: list[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        **_: Any,
    ) -> Any:
        assert tokenize is False
        said = "".join(f"<{m['role']}>{m['content']}" for m in messages)
        return said + "<assistant>" * add_generation_prompt


def row_of(workload: str) -> dict[str, str]:
    return bundled.rows(workload, "test", 1)[0]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_instruction_holds_the_content_and_not_the_answer(workload: str) -> None:
    row = row_of(workload)
    content = {"cnn_dailymail": "article", "xsum": "document", "humaneval": "prompt"}
    text = prompts.instruction(workload, row)
    assert row[content.get(workload, "question")] in text
    assert prompts.answer(workload, row) not in text


def test_the_answer_to_a_program_is_its_body() -> None:
    row = row_of("humaneval")
    assert prompts.answer("humaneval", row) == row["canonical_solution"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_chat_template_is_used_once_with_its_generation_prompt(workload: str) -> None:
    tokenizer, row = Letters("yes"), row_of(workload)
    ids = prompts.encode_prompt(tokenizer, workload, row)
    text = tokenizer.decode(ids)
    assert text == f"<user>{prompts.instruction(workload, row)}<assistant>"
    assert 1 not in ids, "the template writes the special tokens; adding them again would double"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_without_a_template_the_text_is_plain_with_the_tokenizers_own_start(workload: str) -> None:
    tokenizer, row = Letters(), row_of(workload)
    ids = prompts.encode_prompt(tokenizer, workload, row)
    assert ids[0] == 1
    text = tokenizer.decode(ids[1:])
    if workload == "humaneval":
        assert text == row["prompt"], "a base model goes on with the code itself"
    else:
        assert text.startswith(prompts.instruction(workload, row))
        assert text.rstrip().endswith(("Summary:", "Answer:"))


@pytest.mark.parametrize(
    ("workload", "field"), [("cnn_dailymail", "article"), ("xsum", "document")]
)
@pytest.mark.parametrize("template", [None, "yes"])
def test_truncation_cuts_the_article_and_nothing_else(
    workload: str, field: str, template: str | None
) -> None:
    tokenizer, row = Letters(template), row_of(workload)
    text = tokenizer.decode(prompts.encode_prompt(tokenizer, workload, row, max_article_tokens=20))
    whole = tokenizer.decode(prompts.encode_prompt(tokenizer, workload, row))
    assert text == whole.replace(row[field], row[field][:20])
    long = prompts.encode_prompt(tokenizer, workload, row, max_article_tokens=10**6)
    assert tokenizer.decode(long) == whole


@pytest.mark.parametrize(("tokens", "text"), [(9, "Sea Winds"), (8, "sea wind")])
def test_an_article_of_just_as_many_tokens_is_not_taken_apart(tokens: int, text: str) -> None:
    """Encoding and decoding may change a text, as here the case of its letters."""

    class Lower(Letters):
        def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
            return super().decode(ids, skip_special_tokens).lower()

    row = {"article": "Sea Winds"}
    assert prompts.truncate_article(Lower(), "cnn_dailymail", row, tokens) == {"article": text}


def test_truncation_leaves_other_workloads_alone() -> None:
    tokenizer, row = Letters(), row_of("gsm8k")
    whole = prompts.encode_prompt(tokenizer, "gsm8k", row)
    assert prompts.encode_prompt(tokenizer, "gsm8k", row, max_article_tokens=5) == whole


def test_answers_are_encoded_without_special_tokens() -> None:
    row = row_of("gsm8k")
    assert prompts.encode_answer(Letters(), "gsm8k", row) == [ord(c) for c in row["answer"]]


DATED = (
    "<s>[system] Today is {{ strftime_now('%d %b %Y') }}.\n"
    "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


@pytest.fixture(scope="module")
def chat_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real tokenizer whose template prints the date, as Llama 3.2's does."""
    from transformers import AutoTokenizer

    folder: Path = write_tiny_llama(tmp_path_factory.mktemp("dated"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = DATED
    return tokenizer


def test_a_template_that_prints_the_date_gives_the_same_prompt_every_day(
    chat_tokenizer: Any,
) -> None:
    text = prompts.prompt_text(chat_tokenizer, "gsm8k", row_of("gsm8k"))
    assert text.startswith("<s>[system] Today is 26 Jul 2024.\n[user] ")
    assert chat_tokenizer.decode(prompts.encode_prompt(chat_tokenizer, "gsm8k", row_of("gsm8k")))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_users_message_is_found_in_its_frame(workload: str, chat_tokenizer: Any) -> None:
    row = row_of(workload)
    ids = prompts.encode_prompt(chat_tokenizer, workload, row)
    assert prompts.user_message(chat_tokenizer, ids) == prompts.instruction(workload, row).strip()


class Spaced(Letters):
    """As old SentencePiece tokenizers: what comes back has a space more."""

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return " " + super().decode(ids, skip_special_tokens)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_message_is_what_was_written_whatever_the_tokens_give_back(workload: str) -> None:
    tokenizer, row = Spaced("yes"), row_of(workload)
    written = prompts.written_prompt(tokenizer, workload, row)
    assert written.messages == (("user", prompts.instruction(workload, row)),)
    assert written.text == f"<user>{prompts.instruction(workload, row)}<assistant>"
    plain = prompts.written_prompt(Spaced(), workload, row)
    assert plain.messages == (("user", plain.text),)


def test_the_message_of_a_cut_article_is_cut() -> None:
    row = {"article": "Sea winds", "highlights": "Winds."}
    (((_, content),),) = [prompts.written_prompt(Letters("yes"), "cnn_dailymail", row, 3).messages]
    assert content.endswith("\n\nSea")


def test_a_prompt_without_the_frame_is_the_message(chat_tokenizer: Any) -> None:
    ids = chat_tokenizer.encode("<s>say [user] twice , please")
    assert prompts.user_message(chat_tokenizer, ids) == "say [user] twice , please"


def test_unknown_workloads_and_fields_are_key_errors() -> None:
    with pytest.raises(KeyError):
        prompts.instruction("gsm9k", {})
    with pytest.raises(KeyError, match="question"):
        prompts.instruction("gsm8k", {"answer": "1"})
