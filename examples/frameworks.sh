#!/usr/bin/env bash
# One job, one Dask cluster of two workers, five topologies: only the cluster block changes.
# Two asynchronous groups train half as many steps each, so that every run sees the same number of records.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-2500}

scratch=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$scratch"' EXIT

dask-scheduler --host 127.0.0.1 --port 0 --no-dashboard --scheduler-file "$scratch/scheduler.json" 2>"$scratch/scheduler.log" &
pids+=($!)
for name in one two; do
    dask-worker --scheduler-file "$scratch/scheduler.json" --nthreads 2 --name "$name" --no-dashboard \
        --local-directory "$scratch" 2>"$scratch/$name.log" &
    pids+=($!)
done

run() {
    echo "== $1, $2 steps"
    singa-dask run configs/digits/mlp.yaml --cluster "configs/cluster/$1.yaml" --set "train_steps=$2" \
        --scheduler-file "$scratch/scheduler.json" --wait 60 --run-dir "$scratch/$1" --quiet
    python examples/read_run.py "$scratch/$1" | tail -n 1
}

for framework in sandblaster allreduce; do run "$framework" "$steps"; done
for framework in downpour hogwild hybrid; do run "$framework" "$((steps / 2))"; done
