#!/usr/bin/env bash
# Train on several workers of this machine: run_distribute_train.sh [WORKERS] [arguments of resnet_fn.train]
# WORKERS defaults to 8. Logs go to the folder named by LOG_DIR (default: a new one below /tmp).
set -u
workers=8
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  workers=$1
  shift
fi
exec msrun --worker_num "$workers" --local_worker_num "$workers" --join True \
  --log_dir "${LOG_DIR:-$(mktemp -d)}" python -m resnet_fn.train "$@"
