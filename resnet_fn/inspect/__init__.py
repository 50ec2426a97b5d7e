"""A look into a checkpoint: its arrays, its activations, its gradients."""
