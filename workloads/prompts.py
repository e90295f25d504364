"""From a row to the prompt that a model reads, and to the answer that it should give."""

import datetime
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UserError
from workloads.chat import NO_CHAT, ChatOptions, refuse_unfit
from workloads.own.chats import messages_of

TODAY = datetime.date(2024, 7, 26)
"""Chat templates that print the date (Llama 3.2's) get this one, or the prompts of a run that goes
on tomorrow would be others. It is the date that Llama 3.1's template prints."""

_REQUESTS = {
    "cnn_dailymail": "Summarize this article in a few short sentences, one per line.\n\n{content}",
    "xsum": "Summarize this article in one sentence.\n\n{content}",
    "humaneval": "Complete this Python function.\n\n{content}",
    "gsm8k": "Solve this problem step by step. End with #### and the number.\n\n{content}",
    "sentiment": "{content}",
    "shapes": "{content}",
    "speed_bench": "{content}",
    "jsonl": "{content}",
    "sharegpt": "{content}",
}
_CONTENT = {
    "cnn_dailymail": "article",
    "xsum": "document",
    "humaneval": "prompt",
    "gsm8k": "question",
    "sentiment": "sentence",
    "shapes": "image",
    "speed_bench": "prompt",
    "jsonl": "prompt",
    "sharegpt": "prompt",
}
_ANSWER = {
    "cnn_dailymail": "highlights",
    "xsum": "summary",
    "humaneval": "canonical_solution",
    "gsm8k": "answer",
    "sentiment": "label",
    "shapes": "label",
}
_CUES = {
    "cnn_dailymail": "\n\nSummary:\n",
    "xsum": "\n\nSummary:",
    "humaneval": "",
    "gsm8k": "\n\nAnswer:\n",
    "sentiment": "",
    "shapes": "",
    "speed_bench": "\n\n",
    "jsonl": "",
    "sharegpt": "",
}
"""What a model without a chat template reads after the content."""


def instruction(workload: str, row: Mapping[str, str]) -> str:
    """Return the zero-shot instruction with the row's content, as one user message.

    Raises:
        KeyError: for an unknown workload or a row without the workload's content field.
    """
    return _REQUESTS[workload].format(content=row[_CONTENT[workload]])


def answer(workload: str, row: Mapping[str, str]) -> str:
    """Return the reference answer as a model should write it.

    For humaneval this is the function's body, which continues the row's prompt.

    Raises:
        KeyError: for a workload without reference answers.
    """
    return row[_ANSWER[workload]]


def answer_if_any(workload: str, row: Mapping[str, str]) -> str:
    """Return the reference answer; empty for a row that has none."""
    return answer(workload, row) if workload in _ANSWER else row.get("answer", "")


def plain_text(workload: str, row: Mapping[str, str]) -> str:
    """Return the prompt for a model without a chat template.

    A HumanEval prompt is code to go on with, so it stands alone; the others end in a cue.
    """
    if workload == "humaneval":
        return row["prompt"]
    return instruction(workload, row) + _CUES[workload]


@dataclass(frozen=True, slots=True)
class WrittenPrompt:
    """A row's whole prompt."""

    text: str
    """As the model reads it."""
    messages: tuple[tuple[str, str], ...]
    """(role, content) of the chat that it was written from; without a chat template the text, as
    the user's."""


def written_prompt(
    tokenizer: Any,
    workload: str,
    row: Mapping[str, str],
    max_article_tokens: int | None = None,
    chat: ChatOptions = NO_CHAT,
) -> WrittenPrompt:
    """Return the row's prompt, and the messages by which a chat server makes the same.

    Uses the tokenizer's chat template with its generation prompt when it has one, else plain text.

    Args:
        tokenizer: a transformers tokenizer, or anything with `encode`, `decode`,
            `apply_chat_template` and `chat_template`.
        workload: one of cnn_dailymail, xsum, humaneval, gsm8k, sentiment, shapes, speed_bench,
            jsonl, sharegpt.
        row: the row, in the hub's fields.
        max_article_tokens: keep this many tokens of the article (summarization only).
        chat: how the template is used.

    Raises:
        UserError: for a chat that the template does not take, and for `chat` where the template
            does not read it.
    """
    if max_article_tokens is not None and workload in ("cnn_dailymail", "xsum"):
        row = truncate_article(tokenizer, workload, row, max_article_tokens)
    told = messages_of(row)
    if not has_template(tokenizer, chat):
        refuse_unfit(chat, "", workload)
        text = plain_text(workload, row)
        return WrittenPrompt(text, _pairs(told or [_asked(text)]))
    refuse_unfit(chat, str(tokenizer.chat_template), workload)
    messages = told or [_asked(instruction(workload, row))]
    if chat.system is not None and messages[0]["role"] not in ("system", "developer"):
        messages = [{"role": "system", "content": chat.system}, *messages]
    if len(messages) == 1 and not chat.arguments:
        text = _chat(tokenizer, messages[0]["content"], TODAY.strftime)
    else:
        where = f"workload {workload}: row '{row.get('id')}'"
        text = _long_chat(tokenizer, messages, where, chat.arguments)
    return WrittenPrompt(text, _pairs(messages))


def prompt_text(
    tokenizer: Any,
    workload: str,
    row: Mapping[str, str],
    max_article_tokens: int | None = None,
    chat: ChatOptions = NO_CHAT,
) -> str:
    """Return the text of `written_prompt`; the arguments are the same."""
    return written_prompt(tokenizer, workload, row, max_article_tokens, chat).text


def _asked(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _pairs(messages: Sequence[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((message["role"], message["content"]) for message in messages)


def encode_prompt(
    tokenizer: Any,
    workload: str,
    row: Mapping[str, str],
    max_article_tokens: int | None = None,
    chat: ChatOptions = NO_CHAT,
) -> list[int]:
    """Return the token ids of `prompt_text`; the arguments are the same."""
    text = prompt_text(tokenizer, workload, row, max_article_tokens, chat)
    return encode_text(tokenizer, text, chat)


def encode_text(tokenizer: Any, text: str, chat: ChatOptions = NO_CHAT) -> list[int]:
    """Return the token ids of a text that `prompt_text` made.

    A chat template writes the special tokens itself; plain text gets the tokenizer's own.
    """
    ids = tokenizer.encode(text, add_special_tokens=not has_template(tokenizer, chat))
    return [int(i) for i in ids]


def has_template(tokenizer: Any, chat: ChatOptions = NO_CHAT) -> bool:
    """Whether prompts for this tokenizer's model are chats."""
    return chat.template and bool(getattr(tokenizer, "chat_template", None))


def user_message(tokenizer: Any, prompt_ids: Sequence[int]) -> str:
    """Return what the user says in a prompt that the tokenizer's chat template made.

    A chat API applies the template itself, so it must get the message alone; of prompts of rows
    `written_prompt` has it, which not every tokenizer gives back. A prompt that the template did
    not make is returned as text without special tokens.
    """
    if has_template(tokenizer) and (
        found := _frame(tokenizer).fullmatch(tokenizer.decode(prompt_ids))
    ):
        return found[1]
    return str(tokenizer.decode(prompt_ids, skip_special_tokens=True))


@functools.lru_cache(maxsize=4)
def _frame(tokenizer: Any) -> re.Pattern[str]:
    """What the template puts around a message. Kept: making it would cost each request's send."""
    frame = re.escape(_chat(tokenizer, "\0message\0", lambda _: "\0date\0"))
    frame = frame.replace(re.escape("\0date\0"), ".*?")
    before, _, after = frame.partition(re.escape("\0message\0"))
    return re.compile(f"{before}(.*){after}", re.DOTALL)


def _long_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, str]],
    where: str,
    arguments: Mapping[str, Any],
) -> str:
    try:
        return _templated(tokenizer, messages, TODAY.strftime, arguments)
    except Exception as error:  # a template may raise anything
        told = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{where}: the model's chat template refuses it: {told}") from None


def _chat(tokenizer: Any, message: str, strftime: Callable[[str], str]) -> str:
    return _templated(tokenizer, [_asked(message)], strftime, {})


def _templated(
    tokenizer: Any,
    messages: Sequence[Mapping[str, str]],
    strftime: Callable[[str], str],
    arguments: Mapping[str, Any],
) -> str:
    return str(
        tokenizer.apply_chat_template(
            list(messages),
            tokenize=False,
            add_generation_prompt=True,
            strftime_now=strftime,
            **arguments,
        )
    )


def truncate_article(
    tokenizer: Any, workload: str, row: Mapping[str, str], tokens: int
) -> dict[str, str]:
    """Return the row with its article cut to its first `tokens` tokens; other fields stay."""
    field = _CONTENT[workload]
    ids = tokenizer.encode(row[field], add_special_tokens=False)
    if len(ids) <= tokens:
        return dict(row)
    return dict(row) | {field: tokenizer.decode(ids[:tokens], skip_special_tokens=True)}


def encode_answer(tokenizer: Any, workload: str, row: Mapping[str, str]) -> list[int]:
    """Return the answer's token ids without special tokens, the counterpart of `encode_prompt`.

    Training joins the two lists and the stop token; joining the texts first would let a token
    span the border, which never happens in use.
    """
    return [int(i) for i in tokenizer.encode(answer(workload, row), add_special_tokens=False)]
