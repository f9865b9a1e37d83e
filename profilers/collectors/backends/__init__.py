"""What runs a model: PyTorch as it is, torch.compile, ONNX Runtime, TensorRT; and what makes its numbers smaller.

:mod:`names` is light and answers the command line; the others import torch and belong to the worker.
"""
