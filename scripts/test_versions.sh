#!/usr/bin/env bash
# The quick tests on each version of MindSpore that the package is for, in a venv of its own; digits first.
#   [PYTHON=python3.12] scripts/test_versions.sh [VERSION...] [-- arguments of pytest]
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
PORT="--image-size 16 --in-channels 3 --batch-size 4 --steps 3" # recorded, for another version to replay: docs/migrating.md
trap 'rm -rf "$work"' EXIT

TRACES=${TRACES:-$work/traces}
mkdir -p "$TRACES"
versions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  versions+=("$1")
  shift
done
[ $# -gt 0 ] && shift
[ ${#versions[@]} -gt 0 ] || read -ra versions < <("${PYTHON:-python3}" -c \
  'from resnet_fn.runtime.versions import RUN_ON; print(*RUN_ON)')

failed=0
for version in "${versions[@]}"; do
  "${PYTHON:-python3}" -m venv "$work/$version"
  log=$work/$version.log
  if (
    PATH="$work/$version/bin:$PATH"
    pip install -q '.[test]' "mindspore==$version" &&
      (cd "$work" && python -m resnet_fn.doctor && python -m resnet_fn.train --epochs 2 --out-dir "run-$version") &&
      python -m resnet_fn.parity record --net docs/example/mindcv_resnet.py:Net $PORT --out "$TRACES/$version" &&
      python -m pytest "$@"
  ) >"$log" 2>&1; then
    verdict=passed
  else
    verdict=FAILED failed=1
    tail -n 40 "$log"
  fi
  echo "MindSpore $version: $verdict: $(tail -n 1 "$log")"
done
exit $failed
