"""The ten applications of the 1,000-kernels study's suite, written in plain PyTorch: one module each."""
