#!/usr/bin/env bash
# Train on several workers of this machine: run_distribute_train.sh [WORKERS] [arguments of resnet_fn.train]
# WORKERS defaults to 8. Logs go to the folder named by LOG_DIR (default: a new one, removed at the end).
# Several machines: python scripts/launch.py --help
set -u
workers=8
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  workers=$1
  shift
fi
exec python "$(dirname "$0")/launch.py" --workers "$workers" --log-dir "${LOG_DIR:-}" -- \
  python -m resnet_fn.train "$@"
