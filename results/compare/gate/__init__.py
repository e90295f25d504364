"""Is a new run worse than a stored one, by more than a margin allows?

Two runs become `ReducedRun`s, from folders or files of record, their cells are set side by side,
and each metric of each cell is tested (`verdicts`). docs/ci.md says what the answers mean.
"""
