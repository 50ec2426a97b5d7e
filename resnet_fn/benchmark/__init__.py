"""Parts of `python -m resnet_fn.benchmark`: everything compared runs side by side, interleaved, in one call."""
