"""TETRIS serving a model: its layers cut into stages, a process or more each, with batches of
survivors."""
