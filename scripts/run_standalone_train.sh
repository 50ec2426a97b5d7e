#!/usr/bin/env bash
# Train on one worker; arguments go to resnet_fn.train.
exec python -m resnet_fn.train "$@"
