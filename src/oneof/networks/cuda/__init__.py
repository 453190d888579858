"""Hand-written kernels for CUDA; every one has a plain path beside it."""
