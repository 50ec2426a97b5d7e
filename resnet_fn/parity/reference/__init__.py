"""The nets, losses and optimizers of this package in PyTorch, written independently.

Needs PyTorch only.
"""
