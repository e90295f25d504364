"""Server-sent events: the cuts of the network must not matter."""

from __future__ import annotations

import collections
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.http import stream as http_stream
from backends.http.encoders import encoders
from backends.http.stream import EventReader, StreamedAnswer, StreamError, shorten
from workloads.scoring import answer_part

DATA = st.lists(st.binary(min_size=1).filter(lambda data: not set(data) & set(b"\r\n")))


@given(DATA, st.lists(st.integers(1, 40)), st.sampled_from([b"\n", b"\r\n"]))
def test_any_cut_gives_the_same_events(data: list[bytes], cuts: list[int], newline: bytes) -> None:
    stream = b"".join(
        b": note" + newline + b"data: " + item + newline + b"id: 3" + newline + newline
        for item in data
    )
    reader = EventReader()
    found: list[bytes] = []
    for size in cuts:
        found += reader.feed(stream[:size])
        stream = stream[size:]
    found += reader.feed(stream) + reader.finish()
    assert found == data


def test_data_lines_of_one_event_are_joined() -> None:
    assert EventReader().feed(b"data: a\ndata:b\ndata:  c\n\n") == [b"a\nb\n c"]


def test_a_last_event_without_its_empty_line_is_read() -> None:
    reader = EventReader()
    assert reader.feed(b"data: [DONE]") == []
    assert reader.finish() == [b"[DONE]"]
    assert reader.finish() == []


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_stream, "LONGEST_EVENT", 100)
    with pytest.raises(StreamError, match="more than 100 bytes"):
        EventReader().feed(b"x" * 101)


@pytest.mark.parametrize(
    "token", [2**31, -1, 10**400, True, "5", 1.5, None, [1]], ids=lambda token: repr(token)[:9]
)
def test_what_is_no_token_id_is_refused(token: object) -> None:
    """Such an id could be neither decoded nor stored, and would cost the whole trial."""
    chunk = {"choices": [{"text": "a", "token_ids": [1, token]}]}
    with pytest.raises(StreamError, match="is no token id"):
        StreamedAnswer("ids", 8).read(json.dumps(chunk).encode())


def test_token_ids_that_are_no_list_are_refused() -> None:
    for ids in ("12", {"1": 2}, 7):
        chunk = {"choices": [{"text": "a", "token_ids": ids}]}
        with pytest.raises(StreamError, match="token_ids that are no list"):
            StreamedAnswer("ids", 8).read(json.dumps(chunk).encode())


@pytest.mark.parametrize("count", [10**12, 10**400, -(2**60)], ids=("large", "endless", "negative"))
def test_an_absurd_usage_fills_no_memory(count: int) -> None:
    chunk = {"choices": [{"text": "a"}], "usage": {"completion_tokens": count}}
    with pytest.raises(StreamError, match="tokens"):
        StreamedAnswer("usage", 8).read(json.dumps(chunk).encode())


@pytest.mark.parametrize("ending", [{"choices": None}, {}])
def test_a_usage_may_come_without_choices(ending: dict[str, None]) -> None:
    answer = StreamedAnswer("ids", 8)
    answer.read(b'{"choices": [{"text": "a", "token_ids": [1], "finish_reason": "stop"}]}')
    answer.read(json.dumps({**ending, "usage": {"completion_tokens": 1}}).encode())
    assert (answer.done, answer.server_tokens) == (True, 1)
    with pytest.raises(StreamError, match="without choices"):
        answer.read(json.dumps({**ending, "usage": None}).encode())


def test_usage_before_the_answer_ends_nothing() -> None:
    answer = StreamedAnswer("ids", 8)
    for usage in (None, {"completion_tokens": 0}):
        assert answer.read(json.dumps({"choices": [], "usage": usage}).encode()) == ()
        assert not answer.done
    answer.read(b'{"choices": [{"text": "a", "token_ids": [1], "finish_reason": "stop"}]}')
    answer.read(b'{"choices": [], "usage": {"completion_tokens": 1}}')
    assert answer.done


@pytest.mark.parametrize("reason", [None, ""])
def test_an_answer_that_runs_on_has_no_finish_reason(reason: str | None) -> None:
    answer = StreamedAnswer("ids", 8)
    chunk = {"choices": [{"text": "a", "token_ids": [1], "finish_reason": reason}]}
    assert answer.read(json.dumps(chunk).encode()) == (1,)
    assert answer.finished is None


CALLS = ["tool_calls", "function_call"]


@pytest.mark.parametrize("reason", ["stop", *CALLS, "eos", "eos_token", "stop_sequence"])
def test_an_answer_may_end_in_a_call_or_by_other_words(reason: str) -> None:
    answer = StreamedAnswer("ids", 8)
    chunk = {"choices": [{"text": "a", "token_ids": [1], "finish_reason": reason}]}
    assert answer.read(json.dumps(chunk).encode()) == (1,)
    assert answer.finished == "stop"


def test_our_own_count_at_the_servers_limit_may_be_short() -> None:
    answer = StreamedAnswer("tokenizer", 8, str.split)  # type: ignore[arg-type]
    answer.read(b'{"choices": [{"text": "a b", "finish_reason": "length"}]}')
    assert (answer.tokens, answer.finished) == (2, "length")


def test_half_a_surrogate_pair_is_text() -> None:
    answer = StreamedAnswer("ids", 8)
    answer.read(b'{"choices": [{"text": "\\ud83d", "token_ids": [1]}]}')
    assert answer.texts == ["\ud83d"]


def test_messages_are_one_printable_line() -> None:
    assert shorten("a\n b\t\x1b[31m") == "a b \\x1b[31m"
    assert len(shorten("x" * 1000)) == http_stream.SHOWN


@pytest.mark.parametrize("piece", [b"data: x\n", b"data:" + b"x" * 100])
def test_an_event_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    monkeypatch.setattr(http_stream, "LONGEST_EVENT", 1000)
    reader = EventReader()
    for _ in range(9):
        assert reader.feed(piece) == []
    with pytest.raises(StreamError, match="an event of more than 1000 bytes"):
        collections.deque(map(reader.feed, [piece] * 1000), maxlen=0)


def test_many_short_events_are_no_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_stream, "LONGEST_EVENT", 1000)
    reader = EventReader()
    assert sum(len(reader.feed(b"data: x\n\n" * 9)) for _ in range(100)) == 900


def test_what_a_model_thinks_is_text_too() -> None:
    delta = {"reasoning_content": "hm, ", "content": "yes"}
    assert http_stream.chunk_text({"delta": delta}) == "hm, yes"


@pytest.mark.parametrize(
    ("thought", "other", "text"),
    [("hm", "hm", "hm yes"), ("hm", None, "hm yes"), (None, "hm", "hm yes"), ("h", "m", "hm yes")],
)
def test_a_thought_under_two_names_is_one(
    thought: str | None, other: str | None, text: str
) -> None:
    delta = {"reasoning_content": thought, "reasoning": other, "content": " yes"}
    assert http_stream.chunk_text({"delta": delta}) == text


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        ([{"reasoning": "hm"}, {"reasoning": ", so"}, {"content": "y"}], "<think>hm, so</think>y"),
        ([{"reasoning_content": "hm", "content": "y"}, {"content": "."}], "<think>hm</think>y."),
        ([{"reasoning": "hm"}, {"content": ""}, {"content": None}], "<think>hm"),
        ([{"reasoning": ""}, {"content": "yes"}], "yes"),
        ([{"reasoning": "a"}, {"content": "b"}] * 2, "<think>aa</think>bb"),
        ([{"content": "y"}, {"reasoning": " "}], "<think> </think>y"),
    ],
    ids=["one after the other", "in one chunk", "cut off", "no thought", "two thoughts", "late"],
)
def test_thoughts_that_a_server_tells_apart_stand_between_tags(
    deltas: list[dict[str, str | None]], text: str
) -> None:
    """As where the model's own tokens are decoded: else a thought would be scored as an answer."""
    answer = StreamedAnswer("tokenizer", 64, str.split)  # type: ignore[arg-type]
    for delta in deltas:
        answer.read(json.dumps({"choices": [{"delta": delta}]}).encode())
    assert answer.text() == text
    assert answer_part(text) == "".join(delta.get("content") or "" for delta in deltas)


def sentencepiece(puts_blank: str) -> Any:
    """A tokenizer as Llama 2's, by one of the two ways in which a blank gets before its texts."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    merges = [("▁", "s"), ("i", "n"), ("in", "g"), ("▁s", "ing")]
    alphabet = ["<unk>", "<0x0A>", "▁", *"sing", *map("".join, merges)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(alphabet))}
    made = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True)
    )
    if puts_blank == "metaspace":
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif puts_blank == "normalizer":
        blanks = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        made.normalizer = normalizers.Sequence(blanks)
    else:
        made.normalizer = normalizers.Replace(" ", "▁")
    return SimpleNamespace(encode=lambda text, add_special_tokens: made.encode(text).ids)


@pytest.mark.parametrize("puts_blank", ["metaspace", "normalizer", "nobody"])
@pytest.mark.parametrize("first", [" sing", "\n", " s"])
def test_a_tokenizers_own_blank_is_no_token_of_a_chunk(puts_blank: str, first: str) -> None:
    chunks = [first, "ing", " sing", "s", "\n", "ing"]
    answer = StreamedAnswer("tokenizer", 64, *encoders(sentencepiece(puts_blank)))
    for text in chunks:
        answer.read(json.dumps({"choices": [{"text": text}]}).encode())
    assert answer.counted == len(chunks), "each is one token"


def test_a_first_chunk_whose_blank_the_server_took_away_is_one_token() -> None:
    answer = StreamedAnswer("tokenizer", 64, *encoders(sentencepiece("metaspace")))
    answer.read(b'{"choices": [{"text": "sing"}]}')
    assert answer.counted == 1
