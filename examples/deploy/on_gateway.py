"""Train a job on a cluster of a Dask gateway, whose certificates the client has from the gateway.

``pip install dask-gateway``, and ``python on_gateway.py https://gateway.example.org JOB.yaml allreduce --workers 2``.
"""

import argparse

from dask_gateway import Gateway

import singa_dask as sd


def main() -> None:
    """Ask for a cluster, train, and give it back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("job_file")
    parser.add_argument("topology", help="a file with a cluster block, or the name of a built-in one")
    parser.add_argument("--proxy", help="address of the proxy, where it is another one")
    parser.add_argument("--auth", help="kerberos, jupyterhub or basic; by default as in Dask's configuration")
    parser.add_argument("--run-dir", help="a URL that this machine and the workers reach")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with Gateway(given.address, proxy_address=given.proxy, auth=given.auth) as gateway:
        with gateway.new_cluster(shutdown_on_close=True) as cluster, cluster.get_client() as client:
            cluster.scale(given.workers)
            client.wait_for_workers(given.workers)
            run = sd.train(sd.load(given.job_file, cluster=given.topology), client=client, run_dir=given.run_dir)
            print(run.state, run.metrics)


if __name__ == "__main__":
    main()
