"""The parity ladder: a net and its training step against PyTorch's, stage by stage."""
