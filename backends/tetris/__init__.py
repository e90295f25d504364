"""TETRIS: an early-exit model as a pipeline of stages that keeps its batch constant.

After "Fast & Efficient DNN Inference Using Practical Early-Exit Networks" (published later as E3).
Here are the planner and the estimator of the batch profile; `docs/tetris.md` tells what they do.
"""
