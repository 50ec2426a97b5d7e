#!/usr/bin/env bash
# Train on several workers of this machine: run_distribute_train.sh [WORKERS] [arguments of resnet_fn.train]
# WORKERS defaults to 8. Logs go to the folder named by LOG_DIR (default: a new one, removed at the end).
workers=8
[[ "${1:-}" =~ ^[0-9]+$ ]] && workers=$1 && shift
exec python -m resnet_fn.launch --workers "$workers" ${LOG_DIR:+--log-dir "$LOG_DIR"} -- "$@"
