"""Write, find, read and delete checkpoints; read checkpoints of SINGA.

Files
    `checkpoint`: parts of checkpoints and their tensors. `manifest`: the list of the parts. `safetensors`: the encoding
    of tensors. `layer_states`: states of layers. `author`: decides which process may write a file. `retention`: deletes
    old checkpoints.
Memory
    `snapshots`: checkpoints in the memory of processes.
Start of a job
    `lookup`: finds a checkpoint. `initial_values`: reads initial values from it. `singa_checkpoint`: reads files of
    SINGA.
"""

__all__: list[str] = []
