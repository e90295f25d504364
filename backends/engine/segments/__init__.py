"""Queues of streams before the segments of a model, and which of them runs next."""
