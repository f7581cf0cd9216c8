"""Messages between units, and their transport. No other package opens a socket or uses asyncio.

This package handles names, versions and arrays; it does not know Param, Layer or Dask's scheduler.

What is sent
    `message`: messages and addresses of units. `stub`: the state machine of a process. `slices`: params in pieces.
    `sum_tree`: the order in which gradients are added. `exchange`, `tree`: straight to each server, or through
    other processes. `backlog`: a bound for what is received.
How it is sent
    `transport`: the endpoint of a process, with an `outbox` for each peer and one `inbox`. `endpoint`: its host and
    ports. `greeting`: how a connection begins. `wire`: frames on a connection. `shared`: arrays in shared memory.
Dask's own processes
    `dask_servers`: asks which kind they are. `remote_import`: imports a module there.
"""

__all__: list[str] = []
