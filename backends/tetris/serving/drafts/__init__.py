"""Tokens that leave early go on all the same, and are verified by the last stage: AdaDecode as a
pipeline."""
