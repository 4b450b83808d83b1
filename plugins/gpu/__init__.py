"""The ops for NVIDIA GPUs, in the Triton language; nothing here is imported unless asked for."""
