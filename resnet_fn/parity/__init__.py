"""The parity ladder compares a net and its training step with PyTorch's, stage by stage."""
