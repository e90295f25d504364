"""The kernels in C++ for CPUs."""
