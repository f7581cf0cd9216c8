"""Train a job on Kubernetes, where the operator of dask-kubernetes starts Dask's scheduler and workers.

``pip install dask-kubernetes``, and ``python on_kubernetes.py registry.example.org/singa-dask JOB.yaml allreduce``,
from a pod, or from where ``kubectl`` works. The image is that of the ``Containerfile`` beside this file.
"""

import argparse

from dask_kubernetes.operator import KubeCluster, make_cluster_spec

import singa_dask as sd


def spec_of(image: str, n_workers: int, threads: int, memory: str) -> dict:
    """Return the description of a cluster whose Dask workers have so many threads, one for each unit."""
    resources = {"requests": {"cpu": str(threads), "memory": memory}, "limits": {"memory": memory}}
    spec = make_cluster_spec(name="singa", image=image, n_workers=n_workers, resources=resources)
    (worker,) = spec["spec"]["worker"]["spec"]["containers"]
    worker["args"] += ["--nthreads", str(threads)]
    return spec


def main() -> None:
    """Start a cluster, train, and end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image")
    parser.add_argument("job_file")
    parser.add_argument("topology", help="a file with a cluster block, or the name of a built-in one")
    parser.add_argument("--run-dir", help="a URL that this machine and the pods reach, e.g. s3://bucket/runs/mine")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of each Dask worker: one for each unit")
    parser.add_argument("--memory", default="4Gi")
    given = parser.parse_args()
    spec = spec_of(given.image, given.workers, given.threads, given.memory)
    with KubeCluster(custom_cluster_spec=spec) as cluster, cluster.get_client() as client:
        client.wait_for_workers(given.workers)
        run = sd.train(sd.load(given.job_file, cluster=given.topology), client=client, run_dir=given.run_dir)
        print(run.state, run.metrics)


if __name__ == "__main__":
    main()
