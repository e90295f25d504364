"""Heads that draft for a model, in vLLM's formats of EAGLE-3 and Medusa."""
