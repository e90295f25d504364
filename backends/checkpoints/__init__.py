"""Model folders, weights, exit heads and classifiers: each format known once."""
