"""Train a job on a cluster of Slurm or PBS: Dask's scheduler runs here, its workers are jobs of the batch system.

``pip install dask-jobqueue``, and ``python on_batch.py slurm JOB.yaml allreduce --jobs 2 --cores 2``. ``local`` starts
the workers on this machine, to try it.
"""

import argparse

from dask_jobqueue import PBSCluster, SLURMCluster
from dask_jobqueue.local import LocalCluster

import singa_dask as sd

SYSTEMS = {"slurm": SLURMCluster, "pbs": PBSCluster, "local": LocalCluster}


def main() -> None:
    """Start Dask workers, train, and end them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("job_file")
    parser.add_argument("topology", help="a file with a cluster block, or the name of a built-in one")
    parser.add_argument("--run-dir", help="on a file system that all nodes have")
    parser.add_argument("--jobs", type=int, default=2, help="jobs of the batch system, with one Dask worker each")
    parser.add_argument("--cores", type=int, default=2, help="of each: a thread for each unit that it is to have")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--walltime", default="01:00:00")
    parser.add_argument("--interface", help="of the network between the nodes, e.g. ib0")
    given = parser.parse_args()
    cluster = SYSTEMS[given.system](
        cores=given.cores,
        processes=1,  # one Dask worker a job, so that its units share their memory
        memory=given.memory,
        walltime=given.walltime,
        interface=given.interface,
        scheduler_options={"dashboard_address": ":0"},
    )
    with cluster, cluster.get_client() as client:
        cluster.scale(jobs=given.jobs)
        client.wait_for_workers(given.jobs)
        run = sd.train(sd.load(given.job_file, cluster=given.topology), client=client, run_dir=given.run_dir)
        print(run.state, run.metrics)


if __name__ == "__main__":
    main()
