"""The training engine: plain PyTorch, any task, resumable to the bit. Importing this package does not import torch."""
