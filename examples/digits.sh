#!/usr/bin/env bash
# Train a perceptron on handwritten digits, then read what the run has left.
set -euo pipefail
cd "$(dirname "$0")/.."

run_dir=$(mktemp -d)/digits
singa-dask run configs/digits/mlp.yaml --run-dir "$run_dir" "$@"

ls "$run_dir"
python examples/read_run.py "$run_dir"
