"""Write, find, read and delete checkpoints; read checkpoints of SINGA.

Files
    `checkpoint`: reads and writes the parts of a checkpoint. `manifest`: the list of these parts. `safetensors`:
    encodes tensors. `layer_states`: states of layers. `author`: decides which process may write a file. `retention`:
    deletes old checkpoints.
Memory
    `snapshots`: checkpoints in the memory of processes.
Start of a job
    `lookup`: finds a checkpoint. `initial_values`: reads initial values from checkpoints. `singa_checkpoint`: reads
    checkpoints of SINGA.
"""

__all__: list[str] = []
