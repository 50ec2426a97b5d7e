#!/usr/bin/env bash
# Evaluate a checkpoint; arguments go to resnet_fn.evaluate.
exec python -m resnet_fn.evaluate "$@"
