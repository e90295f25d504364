"""Planning TETRIS pipelines from the command line."""
