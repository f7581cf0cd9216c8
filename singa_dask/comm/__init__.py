"""Messages between units, and their transport. Knows params by name, shape and dtype, but no layers.

Messages
    `message`: messages and addresses of units. `stub`: the state machine of a process. `slices`: params in pieces.
    `sum_tree`: the order in which gradients are added. `exchange`: messages straight to servers. `tree`: messages
    through other processes. `backlog`: bounds the memory of received arrays.
Transport
    `transport`: the endpoint of a process, with an `outbox` for each peer and one `inbox`. `endpoint`: host and ports.
    `greeting`: how a connection begins. `wire`: frames on a connection. `shared`: arrays in shared memory.
Dask's processes
    `dask_servers`: asks a server for its kind. `remote_import`: imports a module there.
"""

__all__: list[str] = []
