"""TETRIS serving a model: its layers cut into stages, a process each, batches of survivors."""
