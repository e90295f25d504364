"""The networks: an encoder that follows transformers' BERT, and a residual network for images."""
