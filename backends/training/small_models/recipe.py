"""What a training run of a small model depends on, and what it reports."""

from dataclasses import dataclass, field

MIX = {"cnn_dailymail": 4, "xsum": 3, "humaneval": 4, "gsm8k": 5}
LATE_MIX = {"cnn_dailymail": 3, "xsum": 2, "humaneval": 2, "gsm8k": 4, "drills": 5}
SHAPE = {"layers": 8, "width": 256, "feed_forward": 768, "heads": 4, "kv_heads": 2}


@dataclass(frozen=True)
class Recipe:
    """Everything that the weights depend on, apart from the machine's floating point.

    `rows` examples make a step, computed in `shards` parts. `mix` gives each workload's share;
    from step `late_from` on (rounded down to whole pools) `late_mix` does. `decay` is the share
    of the steps over which the learning rate falls. Prompt tokens count with `prompt_weight`,
    answer tokens with 1.
    """

    steps: int = 4500
    rows: int = 32
    shards: int = 2
    muon_lr: float = 0.02
    adam_lr: float = 0.003
    prompt_weight: float = 0.05
    decay: float = 0.6
    seed: int = 0
    mix: dict[str, int] = field(default_factory=lambda: dict(MIX))
    late_mix: dict[str, int] = field(default_factory=lambda: dict(LATE_MIX))
    late_from: int = 2800
    shape: dict[str, int] = field(default_factory=lambda: dict(SHAPE))


@dataclass(frozen=True)
class TrainingProgress:
    """One report: mean loss per layer (nats per answer token) and speed since the last report.

    A draft's training has one loss, the cross-entropy with the target's distribution.
    """

    step: int
    steps: int
    layer_losses: list[float]
    tokens_per_s: float
    seconds: float
