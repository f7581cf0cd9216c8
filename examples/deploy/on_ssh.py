"""Train a job on machines that this one reaches by SSH; the first host has Dask's scheduler, the others a worker each.

``pip install asyncssh``, and ``python on_ssh.py JOB.yaml allreduce SCHEDULER_HOST WORKER_HOST WORKER_HOST``. Python and
package are at the same path on all of them.
"""

import argparse
import json
import sys

from distributed import SSHCluster

import singa_dask as sd


def main() -> None:
    """Start Dask workers, train, and end them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job_file")
    parser.add_argument("topology", help="a file with a cluster block, or the name of a built-in one")
    parser.add_argument("hosts", nargs="+")
    parser.add_argument("--run-dir", help="on a file system that all hosts have")
    parser.add_argument("--threads", type=int, default=2, help="of each Dask worker: one for each unit")
    parser.add_argument("--connect", type=json.loads, default={}, help='of asyncssh.connect, e.g. {"port": 2222}')
    given = parser.parse_args()
    cluster = SSHCluster(
        given.hosts,
        connect_options=given.connect,
        worker_options={"nthreads": given.threads},
        scheduler_options={"dashboard_address": ":0"},
        remote_python=sys.executable,
    )
    with cluster, cluster.get_client() as client:
        client.wait_for_workers(len(given.hosts) - 1)
        run = sd.train(sd.load(given.job_file, cluster=given.topology), client=client, run_dir=given.run_dir)
        print(run.state, run.metrics)


if __name__ == "__main__":
    main()
