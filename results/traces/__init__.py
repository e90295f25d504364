"""What a decoding method decided, to be replayed on another model: same work, whatever the weights.

A trace holds, for each request, how long its answer was and which exits were asked, how sure they
were and whether they were right, pass by pass. It is recorded from a run (`recorded`) or made from
rates (`rates`), kept in one Parquet file (`file`), and played by a backend (`played`). Layers are
known by their depth as a share of the model's, so that a model of any depth can replay a trace.
"""
