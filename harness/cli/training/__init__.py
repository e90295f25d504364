"""Commands of `train`, and the options that they have in common."""
