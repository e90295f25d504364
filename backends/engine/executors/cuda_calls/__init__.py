"""What the CUDA executor calls: graphs, layers at a fixed number of rows, prompts."""
