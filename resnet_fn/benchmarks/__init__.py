"""Parts of `python -m resnet_fn.benchmark`."""
