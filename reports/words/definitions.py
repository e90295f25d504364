"""What each number in the report means, in a sentence or two; docs/metrics.md says the rest."""

DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "speedup",
        "The reference's decode time per output token divided by this backend's, paired on the "
        "same request in the same repeat; geometric mean over the pairs. The 95% interval is a "
        "bootstrap that draws repeats and requests. Over several rows: the geometric means of "
        "their values and of both ends of their intervals.",
    ),
    (
        "consistency_ratio (same answers)",
        "Share of requests whose token ids equal the reference's, lengths included. A prefix does "
        "not count.",
    ),
    (
        "noise_floor",
        "The same share for the reference against another repeat of itself. A backend is not less "
        "consistent than the reference unless it lies below this.",
    ),
    (
        "first divergence",
        "The index of the first token that differs from the reference's answer, counted from 0.",
    ),
    (
        "output_tok_per_s (throughput)",
        "The output tokens of completed requests divided by the time from the first submit to the "
        "last commit.",
    ),
    (
        "ttft_s",
        "Time to first token: first commit minus the scheduled arrival (open loop) or the submit "
        "(closed loop). Lateness of the client counts against the system.",
    ),
    (
        "tpot_s",
        "Time per output token: (last commit - first commit) / (tokens after the first commit). "
        "Undefined, not 0, for a request whose tokens all came at once.",
    ),
    ("e2e_s", "End-to-end latency: last commit minus the scheduled arrival."),
    (
        "realised_rate_per_s",
        "The arrivals of an open load less one, over the time from the first to the last as "
        "scheduled. A random schedule of few requests is off the rate that was asked for.",
    ),
    (
        "itl_s",
        "Inter-token latency: the gap between two commits divided by the tokens of the later one, "
        "one value per token.",
    ),
    (
        "goodput_req_per_s",
        "Requests per second that met every bound of the objective (SLO). Errors and unfinished "
        "requests count as missed.",
    ),
    (
        "early_prediction_rate, rejection_rate",
        "Early predictions over all steps (early predictions and full passes); drafts that "
        "verification threw away over all drafts.",
    ),
    (
        "early_exit_rate",
        "Layer passes skipped over all layer passes, of the tokens after the first. alone: if each "
        "sequence left when it was confident itself, instead of with its batch.",
    ),
    (
        "inner_token_latency_s",
        "The sum over requests of last commit minus first commit, over the sum of all their "
        "tokens.",
    ),
    (
        "predicted_speedup",
        "Plain decoding's cost of the committed tokens over the cost of the passes that were "
        "counted, at the costs that the backend measured before the first trial. It leaves out "
        "what happens between passes, and that requests share them.",
    ),
    (
        "speedup_native, consistency_native",
        "The same as speedup and consistency_ratio, against autoregressive: plain decoding on the "
        "same engine, so that the ratio is the algorithm's alone.",
    ),
    (
        "rouge_l_to_label, exact_match, exact_match_flexible, pass_at_1 (quality)",
        "ROUGE-L against the data set's summary; the number after #### is the label's (GSM8K's "
        "official score), or the number that the answer comes to, however it is written, equals "
        "it; the program passes its tests in the sandbox. Averages over requests.",
    ),
    (
        "percentiles",
        "p50, p95 and p99 over the requests of a trial. Of several repeats the median is shown. "
        "With fewer than 20 (100) requests nothing lies beyond the p95 (p99): it is marked with "
        "their number, and is little more than the maximum.",
    ),
    (
        "valid",
        "A trial is not valid when its percentiles rest on too few samples, the client was late, "
        "the cache was warm, requests failed, output lengths differ from the reference, clocks "
        "were throttled or the machine was noisy. Its numbers are struck through. In part: its "
        "own numbers stand, but the reference's trial is not valid, or was run hours away or by "
        "another invocation, so that what compares the two is struck through.",
    ),
    (
        "provenance",
        "official code: the authors' own implementation. re-implementation: written for "
        "decodebench from the paper. simulation: a model of a system, not a measurement of one. "
        "lossy†: the backend does not promise plain decoding's text.",
    ),
)
