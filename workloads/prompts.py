"""From a row to the prompt that a model reads, and to the answer that it should give."""

from collections.abc import Mapping
from typing import Any

_REQUESTS = {
    "cnn_dailymail": "Summarize this article in a few short sentences, one per line.\n\n{content}",
    "xsum": "Summarize this article in one sentence.\n\n{content}",
    "humaneval": "Complete this Python function.\n\n{content}",
    "gsm8k": "Solve this problem step by step. End with #### and the number.\n\n{content}",
}
_CONTENT = {
    "cnn_dailymail": "article",
    "xsum": "document",
    "humaneval": "prompt",
    "gsm8k": "question",
}
_ANSWER = {
    "cnn_dailymail": "highlights",
    "xsum": "summary",
    "humaneval": "canonical_solution",
    "gsm8k": "answer",
}
_CUES = {
    "cnn_dailymail": "\n\nSummary:\n",
    "xsum": "\n\nSummary:",
    "humaneval": "",
    "gsm8k": "\n\nAnswer:\n",
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
    """
    return row[_ANSWER[workload]]


def plain_text(workload: str, row: Mapping[str, str]) -> str:
    """Return the prompt for a model without a chat template.

    A HumanEval prompt is code to go on with, so it stands alone; the others end in a cue.
    """
    if workload == "humaneval":
        return row["prompt"]
    return instruction(workload, row) + _CUES[workload]


def encode_prompt(
    tokenizer: Any,
    workload: str,
    row: Mapping[str, str],
    max_article_tokens: int | None = None,
) -> list[int]:
    """Return the token ids of the row's prompt.

    Uses the tokenizer's chat template with its generation prompt when it has one, else plain text
    with the tokenizer's own special tokens.

    Args:
        tokenizer: a transformers tokenizer, or anything with `encode`, `decode`,
            `apply_chat_template` and `chat_template`.
        workload: one of cnn_dailymail, xsum, humaneval, gsm8k.
        row: the row, in the hub's fields.
        max_article_tokens: keep this many tokens of the article (summarization only).
    """
    if max_article_tokens is not None and workload in ("cnn_dailymail", "xsum"):
        row = truncate_article(tokenizer, workload, row, max_article_tokens)
    if not getattr(tokenizer, "chat_template", None):
        return [int(i) for i in tokenizer.encode(plain_text(workload, row))]
    messages = [{"role": "user", "content": instruction(workload, row)}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return [int(i) for i in tokenizer.encode(text, add_special_tokens=False)]


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


def stop_ids(tokenizer: Any, configured: int | list[int] | None = None) -> tuple[int, ...]:
    """Return the ids that end an answer: those of the generation config and the tokenizer's own.

    Args:
        tokenizer: anything with `eos_token_id`.
        configured: `eos_token_id` of the model's generation config, where it has one.
    """
    listed = [configured] if isinstance(configured, int) else list(configured or [])
    own = getattr(tokenizer, "eos_token_id", None)
    return tuple(sorted({*listed, *([] if own is None else [own])}))
