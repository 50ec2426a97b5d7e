"""The nets, losses and optimizers of this package in PyTorch, written apart from the others. Needs PyTorch only."""
