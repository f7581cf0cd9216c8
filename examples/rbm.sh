#!/usr/bin/env bash
# Train a stack of four RBMs, then the auto-encoder that they make, on handwritten digits.
#
#   bash examples/rbm.sh                      # a few steps of each, to look at
#   bash examples/rbm.sh --train              # all of them: minutes
#   bash examples/rbm.sh --cluster FILE ...   # what follows is for each singa-dask run
set -euo pipefail
cd "$(dirname "$0")/.."

few=(--set train_steps=40 --set disp_freq=10 --set test_freq=40 --set test_steps=2)
if [[ ${1:-} == --train ]]; then
    few=()
    shift
fi

runs=$(mktemp -d)
singa-dask run configs/rbm/rbm1.yaml --run-dir "$runs/rbm1" "${few[@]}" "$@"
for n in 2 3 4; do
    singa-dask run "configs/rbm/rbm$n.yaml" --run-dir "$runs/rbm$n" \
        --set "checkpoint_path=[$runs/rbm$((n - 1))]" "${few[@]}" "$@"
done
singa-dask run configs/rbm/autoencoder.yaml --run-dir "$runs/autoencoder" \
    --set "checkpoint_path=[$runs/rbm1, $runs/rbm2, $runs/rbm3, $runs/rbm4]" "${few[@]}" "$@"

# "test": the squared error of a digit, decoded from 30 numbers.
cat "$runs/autoencoder/summary.json"
