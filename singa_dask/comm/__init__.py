"""Messages between units, and their transport. The package knows params, but no layers.

Messages
    `message`: messages and addresses of units. `stub`: sums the gradients of a process and exchanges params with
    servers. `slices`: divides params into slices. `sum_tree`: the order in which gradients are added. `exchange`:
    messages straight to servers. `tree`: messages through other processes. `backlog`: limits the memory of received
    arrays.
Transport
    `transport`: the endpoint of a process, with an `outbox` for each peer and one `inbox`. `endpoint`: host and ports.
    `greeting`: how a connection begins. `wire`: frames on a connection. `shared`: arrays in shared memory.
Dask's processes
    `dask_servers`: asks a Dask server for its kind. `remote_import`: imports a module in a Dask process.
"""

__all__: list[str] = []
