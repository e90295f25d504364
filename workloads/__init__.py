"""The workloads: what their rows hold, where the real ones come from, how answers are scored."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import UserError, nearest
from harness.core.nouns import Answer


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """One data set, in the field names of its version on the Hugging Face hub."""

    fields: tuple[str, ...]
    """What every row must have."""
    id_field: str
    """What names a row; where a row lacks it, a hash of its fields does."""
    content: str
    """The field that the model is to read."""
    hub: str
    config: str | None
    revision: str
    """Commit of the hub repository; what was written after it is never loaded unasked."""
    split: str
    max_new_tokens: int
    """How long an answer may be when an experiment does not say: the papers' length where one has
    it (AdaDecode, appendix D: 512 on XSum, HumanEval and GSM8K). The early-exit paper, on
    CNN/DailyMail, names none."""
    answer_tokens: int
    """How long the data set's own answers are at most, nearly; training lets a model write no
    more."""
    metric: str
    """Of task quality; empty: nothing is scored."""
    difficulty: str
    """The measure behind the option `mix`, in words."""
    answer: Answer = "tokens"
    """What a request asks for."""
    default_source: str = "bundled"
    """Where its rows come from when an experiment does not say; empty: it has to."""


WORKLOADS: dict[str, WorkloadInfo] = {
    "cnn_dailymail": WorkloadInfo(
        fields=("article", "highlights"),
        id_field="id",
        content="article",
        hub="abisee/cnn_dailymail",
        config="3.0.0",
        revision="96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
        split="test",
        max_new_tokens=128,
        answer_tokens=128,
        metric="rouge_l_to_label",
        difficulty="share of the summary's words that the article does not hold",
    ),
    "xsum": WorkloadInfo(
        fields=("document", "summary"),
        id_field="id",
        content="document",
        hub="EdinburghNLP/xsum",
        config=None,
        revision="7d4d486c2f8ef850b1a11aead99b894ff3dd7da9",
        split="test",
        max_new_tokens=512,
        answer_tokens=64,
        metric="rouge_l_to_label",
        difficulty="share of the summary's words that the article does not hold",
    ),
    "humaneval": WorkloadInfo(
        fields=("task_id", "prompt", "entry_point", "canonical_solution", "test"),
        id_field="task_id",
        content="prompt",
        hub="openai/openai_humaneval",
        config="openai_humaneval",
        revision="7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
        split="test",
        max_new_tokens=512,
        answer_tokens=384,
        metric="pass_at_1",
        difficulty="words and signs of the canonical solution",
    ),
    "gsm8k": WorkloadInfo(
        fields=("question", "answer"),
        id_field="id",
        content="question",
        hub="openai/gsm8k",
        config="main",
        revision="e53f048856ff4f594e959d75785d2c2d37b678ee",
        split="test",
        max_new_tokens=512,
        answer_tokens=256,
        metric="exact_match",
        difficulty="computing steps of the worked answer",
    ),
}

UNSCORED: dict[str, WorkloadInfo] = {
    "speed_bench": WorkloadInfo(
        fields=("category", "prompt"),
        id_field="question_id",
        content="prompt",
        hub="nvidia/SPEED-Bench",
        config="qualitative",
        revision="487aa718444e816458d1a0a52bfce7a454285cf4",
        split="test",
        max_new_tokens=512,
        answer_tokens=512,
        metric="",
        difficulty="words of the prompt",
    ),
}
"""Measured like workloads, but without reference answers: never scored, and not for training."""
LABELLED: dict[str, WorkloadInfo] = {
    "sentiment": WorkloadInfo(
        fields=("sentence", "label"),
        id_field="idx",
        content="sentence",
        hub="stanfordnlp/sst2",
        config=None,
        revision="8d51e7e4887a4caaa95b3fbebbf53c0490b58bbb",
        split="validation",
        max_new_tokens=1,
        answer_tokens=1,
        metric="accuracy",
        difficulty="negations, contrasts and expectations in the sentence, then its words",
        answer="label",
    ),
    "shapes": WorkloadInfo(
        fields=("image", "label"),
        id_field="id",
        content="image",
        hub="",
        config=None,
        revision="",
        split="test",
        max_new_tokens=1,
        answer_tokens=1,
        metric="accuracy",
        difficulty="mean difference of neighbouring pixels over the spread of all",
        answer="label",
    ),
}
"""Asked for one of a few labels (`workloads.labelled`), of backends that classify."""
OWN: dict[str, WorkloadInfo] = {
    name: WorkloadInfo(
        fields=("prompt",),
        id_field="id",
        content="prompt",
        hub="",
        config=None,
        revision="",
        split="",
        max_new_tokens=longest,
        answer_tokens=longest,
        metric="",
        difficulty="characters of the prompt",
        default_source=source,
    )
    for name, longest, source in (
        ("jsonl", 256, ""),
        ("sharegpt", 1024, ""),
        ("synthetic", 32_768, "generated"),
    )
}
"""Prompts of the user's own (`workloads.own`): from a file, or made. Scored where their rows say
how; those from a file are for training and calibration, too."""
TRAINING_SOURCES: dict[str, WorkloadInfo] = {
    "mbpp": WorkloadInfo(
        fields=("text", "code", "test_list"),
        id_field="task_id",
        content="text",
        hub="google-research-datasets/mbpp",
        config="full",
        revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        split="train",
        max_new_tokens=512,
        answer_tokens=384,
        metric="pass_at_1",
        difficulty="words and signs of the code",
    ),
}
"""Read like workloads, but for training only: no prompt and no scoring exist for them."""


def measurable() -> dict[str, WorkloadInfo]:
    """All that an experiment may name."""
    return WORKLOADS | LABELLED | UNSCORED | OWN


def workload_info(name: str) -> WorkloadInfo:
    """What is known of a workload or training source; raises `UserError` for another name."""
    known = measurable() | TRAINING_SOURCES
    if name not in known:
        raise UserError(f"workloads: unknown workload '{name}'; {nearest(name, measurable())}")
    return known[name]
