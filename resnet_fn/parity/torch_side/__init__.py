"""PyTorch's side of the ladder: plain torch, as its documentation says to write it. Needs torch only."""
