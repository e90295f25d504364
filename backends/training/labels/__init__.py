"""Trains the bundled classifiers on the bundled generators' train rows: minutes on one core."""
