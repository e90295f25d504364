"""TETRIS serving a model: its layers cut into stages, each in processes of its own, batches of survivors."""
