"""A classifier as a pipeline of stages, a process each, with survivors fused between them."""
