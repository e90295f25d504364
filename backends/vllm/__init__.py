"""Unmodified vLLM."""
