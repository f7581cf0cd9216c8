"""Reader of job files: from text to a tree of values with their places, and to a `JobConf`.

`jobfile` reads a file; start there.

Tree
    `tree`: values with their places.
Text to tree
    `yaml_text`: YAML. `singa_text`: protobuf's text format, and `singa_job`, `singa_rules`, `singa_inputs`:
    the jobs of SINGA in it.
Changes of the tree
    `layer_blocks`: blocks of layers. `cluster_file`: another cluster, such as those in ``clusters``. `overrides`:
    ``--set``.
Text to text
    `redacted_text`: hides secrets.
"""

__all__: list[str] = []
