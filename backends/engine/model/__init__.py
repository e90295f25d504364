"""A checkpoint's shape, weights, cache and layers."""
