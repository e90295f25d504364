"""Published architectures with random weights: what a decoding method costs at their size."""
