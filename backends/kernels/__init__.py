"""The decoder's kernels, one file per operation: a torch reference that runs anywhere, the Triton
kernel for CUDA, and the launcher that checks shapes and writes into tensors it is given.

Nothing here allocates, synchronises or reads a device value on the host, so every launcher can be
captured in a CUDA graph. What a row gets never depends on the other rows of the call.
"""
