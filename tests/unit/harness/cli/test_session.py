"""What a trial's requests are made of, what pins them, and where the texts come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from backends.checkpoints import models
from harness.cli import wiring
from harness.cli.session import EngineSession, open_session
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.names import STAND_IN
from harness.core.nouns import (
    UNKNOWN_TOKEN,
    BackendInfo,
    Commit,
    Generation,
    Label,
    Model,
    Request,
    Sampling,
    Trial,
)
from results.compare.pairing import data_rows
from tests.support.harness.resolved import trials
from tests.support.tiny_llama import EOS_ID, write_tiny_llama
from workloads import WORKLOADS, arrivals, prompts
from workloads.measured import load_prompts


class Silent(Backend):
    """A backend whose answers the test makes up."""

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        self.info = BackendInfo("silent", "0", "simulation", {}, True)
        self.told = texts

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        return cls()

    def submit(self, request: Request) -> None: ...

    def poll(self) -> list[Commit]:
        return []

    def reset(self) -> None: ...

    def texts(self) -> dict[str, str] | None:
        return self.told


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


def test_a_served_model_is_opened_without_weights(tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path)
    [trial, *_] = trials(folder)
    (folder / "model.safetensors").unlink()
    session = open_session(trial)
    assert session.stop_ids == (EOS_ID,)
    session.close()


def session(model: Path, backend: Silent) -> EngineSession:
    return EngineSession(backend, models.load_tokenizer(model), (EOS_ID,), 0.0)


def answers(trial: Trial, tokens: list[int]) -> list[Generation]:
    rows = load_prompts(trial, models.load_tokenizer(models.resolve(trial.model)))
    return [Generation(row.request_id, 0, 0, 0, [1], [1], tokens, "stop") for row in rows]


def test_texts_are_the_tokens_without_the_special_ones(model: Path) -> None:
    (trial,) = trials(model)
    opened = session(model, Silent())
    ids = opened.tokenizer.encode('return " , ".join(x) # 12')
    texts, scores = opened.finish(trial, answers(trial, [*ids, EOS_ID]))
    assert set(texts.values()) == {'return " , ".join(x) # 12'}
    names = {"exact_match", "exact_match_flexible"}
    assert all(found.keys() == names for found in scores.values())


def test_what_random_weights_answer_is_not_scored(model: Path) -> None:
    (trial,) = trials(model)
    generations = answers(trial, [5, 6])
    random = replace(trial, model=replace(trial.model, shape=True))
    opened = session(model, Silent())
    texts, scores = opened.finish(random, generations)
    assert (texts, scores) == (opened.finish(trial, generations)[0], {})


def test_a_workload_says_what_its_requests_ask_for(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trial,) = trials(model)
    opened = session(model, Silent())
    assert {r.answer for r in opened.requests(trial)[1]} == {"tokens"}
    monkeypatch.setitem(WORKLOADS, "gsm8k", replace(WORKLOADS["gsm8k"], answer="label"))
    warm_up, measured = opened.requests(trial)
    assert {r.answer for r in (*warm_up, *measured)} == {"label"}
    labelled = [replace(g, token_ids=[], label=Label("7", 0.9)) for g in answers(trial, [5])]
    texts, _ = opened.finish(trial, labelled)
    assert set(texts.values()) == {"7"}


def test_a_server_that_tells_no_ids_is_scored_on_its_own_text(model: Path) -> None:
    (trial,) = trials(model)
    generations = answers(trial, [UNKNOWN_TOKEN] * 3)
    right = {g.request_id: "#### no number" for g in generations}
    rows = load_prompts(trial, models.load_tokenizer(model))
    right[rows[2].request_id] = rows[2].row.data["answer"]
    texts, scores = session(model, Silent(texts=right)).finish(trial, generations)
    assert texts == right
    assert [found["exact_match"] for found in scores.values()] == [0, 0, 1, 0, 0, 0]


def test_a_chats_thought_that_was_cut_off_is_no_answer(tmp_path: Path) -> None:
    """Decoded tokens have no more of it than elsewhere; a server's own text has its tags back where
    there was one."""
    folder = write_tiny_llama(tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}<think>\n")
    (trial,) = trials(folder)
    chat = replace(trial, options={"api": "chat"})
    opened, generations = session(folder, Silent()), answers(trial, [])
    rows = load_prompts(trial, opened.tokenizer)
    for generation, row in zip(generations, rows, strict=True):
        generation.token_ids = opened.tokenizer.encode(row.row.data["answer"])
    texts, scores = opened.finish(chat, generations)
    assert [found["exact_match"] for found in scores.values()] == [0] * 6
    _, scores = session(folder, Silent(texts=texts)).finish(chat, generations)
    assert [found["exact_match"] for found in scores.values()] == [1] * 6


def test_the_stored_prompt_is_what_the_model_reads(model: Path) -> None:
    long = {"name": "cnn_dailymail", "max_article_tokens": 40}
    for trial in trials(model, workloads=["humaneval", long]):
        ((stored, checksum),) = wiring.prompt_rows([trial], model)
        _, measured = session(model, Silent()).requests(trial)
        tokenizer = models.load_tokenizer(model)
        assert checksum == trial.workload.checksum
        for row, request in zip(stored, measured, strict=True):
            assert row["prompt_text"] == tokenizer.decode(request.prompt_ids)
            assert row["prompt_tokens"] == len(request.prompt_ids)


def test_articles_cut_otherwise_are_other_prompts(model: Path) -> None:
    cuts = [{"name": "xsum", "max_article_tokens": most} for most in (20, 40)]
    stored = list(wiring.prompt_rows(trials(model, workloads=cuts), model))
    assert len({checksum for _, checksum in stored}) == 2
    assert len({rows[0]["prompt_text"] for rows, _ in stored}) == 2


def test_a_row_asked_again_is_known_as_one(model: Path) -> None:
    """The ids that `results.compare.pairing.data_rows` reads: intervals do not count it twice."""
    (trial,) = trials(model, workloads=[{"name": "gsm8k", "rows": 4}])
    _, measured = session(model, Silent()).requests(trial)
    rows = data_rows([request.id for request in measured])
    assert rows is not None
    assert rows.tolist() == [0, 1, 2, 3, 0, 1]
    for request, row in zip(measured, rows, strict=True):
        assert request.prompt_ids == measured[row].prompt_ids


def test_the_wording_of_prompts_is_part_of_a_trials_key(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = trials(model)
    monkeypatch.setitem(prompts._REQUESTS, "gsm8k", "Solve:\n\n{content}")
    (after,) = trials(model)
    assert after.key("machine") != before.key("machine")


def test_the_chat_template_is_part_of_a_trials_key(tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path / "model")
    (before,) = trials(folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (after,) = trials(folder)
    assert after.key("machine") != before.key("machine")


def test_the_arrivals_of_a_trace_are_part_of_a_trials_key(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("\n".join(map(str, range(6))))
    load = [{"kind": "trace", "trace": str(trace)}]
    (before,) = trials(model, load=load)
    _, measured = session(model, Silent()).requests(before)
    assert [request.arrival_s for request in measured] == [0, 1, 2, 3, 4, 5]
    trace.write_text("\n".join(str(2 * n) for n in range(6)))
    (after,) = trials(model, load=load)
    assert after.key("machine") != before.key("machine")
    with pytest.raises(UserError, match="changed while the experiment ran"):
        session(model, Silent()).requests(before)


def test_the_seed_decides_when_requests_arrive(model: Path) -> None:
    def times(seed: int) -> list[float]:
        load = [{"kind": "poisson", "rate": 5.0}]
        (trial,) = trials(model, load=load, seed=seed)
        _, measured = session(model, Silent()).requests(trial)
        assert [r.arrival_s for r in measured] == arrivals.arrival_times(trial.load, 6, seed)
        return [request.arrival_s for request in measured]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_repeats_have_one_draw_of_arrivals_or_each_its_own(model: Path) -> None:
    def times(repeat: int, redraw: bool = True) -> list[float]:
        load = [{"kind": "gamma", "rate": 5.0, "burstiness": 0.5, "redraw": redraw}]
        (trial,) = trials(model, load=load, seed=3)
        _, measured = session(model, Silent()).requests(replace(trial, repeat=repeat))
        return [request.arrival_s for request in measured]

    assert times(0) == times(0, redraw=False) == times(7, redraw=False)
    assert len({tuple(times(repeat)) for repeat in range(4)}) == 4
    assert times(STAND_IN + 2) == times(2), "a repeat measured again is paired with the same"


def test_warm_up_prompts_are_not_the_measured_ones(model: Path) -> None:
    (trial,) = trials(model)
    warm_up, measured = session(model, Silent()).requests(trial)
    own = {request.prompt_ids for request in measured}
    for request in warm_up:
        assert request.prompt_ids not in own
        assert request.ignore_eos
    assert {r.id for r in warm_up}.isdisjoint(r.id for r in measured)
    again = session(model, Silent()).requests(replace(trial, repeat=1))
    assert again == (warm_up, measured), "repeats ask the same"


def test_a_request_asks_what_its_trial_says(model: Path) -> None:
    (trial,) = trials(
        model,
        max_new_tokens=33,
        ignore_eos=True,
        sampling={"temperature": 0.5, "top_p": 0.9, "seed": 4},
    )
    _, measured = session(model, Silent()).requests(trial)
    for place, request in enumerate(measured):
        assert request.max_new_tokens == 33
        assert request.sampling == Sampling(0.5, 0.9, 4 + place), "draws of its own"
        assert request.stop_ids == (EOS_ID,)
        assert request.ignore_eos
    (plain,) = trials(model)
    assert not session(model, Silent()).requests(plain)[1][0].ignore_eos


def test_the_warm_up_is_the_same_work_on_other_prompts(model: Path) -> None:
    """As many at once as the load has, the same tokens in a random order, at once and short."""
    load = [{"kind": "closed", "concurrency": 5}]
    (trial,) = trials(model, load=load, max_new_tokens=200)
    warm_up, measured = session(model, Silent()).requests(trial)
    assert len(warm_up) == 5
    for request, like in zip(warm_up, measured, strict=False):
        assert sorted(request.prompt_ids) == sorted(like.prompt_ids)
        assert request.prompt_ids not in (like.prompt_ids, like.prompt_ids[::-1])
        assert (request.max_new_tokens, request.arrival_s) == (16, 0.0)
    (late,) = trials(model, load=[{"kind": "constant", "rate": 0.1}], max_new_tokens=8)
    warm_up, measured = session(model, Silent()).requests(late)
    assert measured[3].arrival_s > 0
    assert [(r.arrival_s, r.max_new_tokens) for r in warm_up] == [(0.0, 8)] * 4


def test_one_engine_serves_trials_of_other_rows(model: Path) -> None:
    opened = session(model, Silent())
    (few,), (more,) = trials(model), trials(model, requests=9)
    (others,) = trials(model, workloads=["humaneval"])
    for trial, count in ((few, 6), (more, 9), (others, 6), (few, 6)):
        _, measured = opened.requests(trial)
        assert measured == session(model, Silent()).requests(trial)[1]
        assert len(measured) == count


def test_failed_requests_have_no_text_and_no_score(model: Path) -> None:
    (trial,) = trials(model)
    generations = answers(trial, [5])
    generations[1].finished, generations[4].finished = "error", None
    texts, scores = session(model, Silent()).finish(trial, generations)
    assert texts.keys() == scores.keys()
    assert texts.keys() == {generations[i].request_id for i in (0, 2, 3, 5)}


def test_a_refusal_names_which_of_several_it_means() -> None:
    def refusal(*layers: int) -> str:
        entries = [{"name": "vllm-early-exit", "layers": [layer]} for layer in layers]
        with pytest.raises(UserError) as caught:
            wiring.warnings(trials(models.BUNDLED["demo"], backends=entries))
        return str(caught.value)

    assert refusal(9).endswith("expected numbers from 1 to 7")
    assert refusal(2, 9).endswith("""1 to 7 (with {"layers":[9]})""")
