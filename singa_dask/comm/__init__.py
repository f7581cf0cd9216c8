"""Messages between units, and their transport. This package knows params, but no layers.

Messages
    `message`: messages and addresses of units. `stub`: sums the gradients of a process and exchanges params with
    servers. `slices`: divides params into slices. `sum_tree`: the order in which gradients are added. `exchange`: sends
    gradients directly to servers. `tree`: sends them through other processes. `backlog`: limits the memory of received
    arrays.
Transport
    `transport`: exchanges messages with other processes, through an `outbox` for each of them and one `inbox`.
    `endpoint`: host and ports. `greeting`: the beginning of a connection. `wire`: frames on a connection. `shared`:
    arrays in shared memory.
Dask's processes
    `dask_servers`: asks a Dask server whether it is a scheduler or a Dask worker. `remote_import`: imports a module in
    a Dask process.
"""

__all__: list[str] = []
