"""Kernels of the decoder and of early exit, one file per operation: a torch reference that runs
anywhere, the Triton kernel for CUDA, and the launcher that checks shapes and writes into tensors it
is given.

No launcher allocates, synchronises or reads a device value on the host, so each can be captured in
a CUDA graph. What a row gets never depends on the other rows of the call. Where a caller wants a
new tensor, or the reference on a CPU, a function says so.
"""
