"""Write, find, read and delete checkpoints; read checkpoints of SINGA.

Files
    `checkpoint`: parts and their tensors. `manifest`: the list of the parts. `safetensors`: the encoding.
    `layer_states`: states of layers. `author`: who may write. `retention`: which checkpoints are deleted.
Memory
    `snapshots`: checkpoints in the memory of processes.
Start of a job
    `lookup`: finds a checkpoint. `initial_values`: takes values from it. `singa_checkpoint`: reads files of SINGA.
"""

__all__: list[str] = []
