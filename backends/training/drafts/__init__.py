"""Training of heads that draft for a model, in the formats that vLLM loads."""
