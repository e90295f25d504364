"""Comparisons of trials: pairs, answers, statistics, and what may be believed."""
