"""Models of a job, rules that check it, and the reader of job files.

Common to all models
    `base`: the class `Conf`. `kinds`: types of values. `blocks`: the keys that registered classes declare. `parts`:
    models that name a registered class. `mistakes`: messages. `foreign_names`: names that other programs use.
Models
    `job`: a whole job. `cluster`, `updater`, `net`, `layer`, `metrics`, `profile`: parts of a job. `wiring_rules`:
    checks of the sources of layers.
Job files
    `jobfile`: reads a file. `tree`: the values of a file with their places (line and column). `yaml_text`: YAML.
    `singa_text`, `singa_job`, `singa_rules`: SINGA's own format. `layer_blocks`, `cluster_file`, `overrides`: changes
    of the tree. `redacted_text`: hides secrets. `warnings`: finds likely mistakes in a valid job.
Documentation and editors
    `describe`: describes a part. `json_schema`: the schema of job files. `nn_stub`: types of `singa_dask.nn`.

Names are imported on first use, so that a layer can use a model without loading the reader of job files.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.conf.base import Conf
    from singa_dask.conf.cluster import ClusterConf
    from singa_dask.conf.job import JobConf
    from singa_dask.conf.jobfile import JobFile, load, loads
    from singa_dask.conf.json_schema import schema
    from singa_dask.conf.layer import InitConf, LayerConf, ParamConf, Phase
    from singa_dask.conf.net import NetConf
    from singa_dask.conf.updater import UpdaterConf

__all__ = [
    "ClusterConf",
    "Conf",
    "InitConf",
    "JobConf",
    "JobFile",
    "LayerConf",
    "NetConf",
    "ParamConf",
    "Phase",
    "UpdaterConf",
    "load",
    "loads",
    "schema",
]

__getattr__ = lazy_names(
    __name__,
    {
        "base": ["Conf"],
        "cluster": ["ClusterConf"],
        "job": ["JobConf"],
        "jobfile": ["JobFile", "load", "loads"],
        "json_schema": ["schema"],
        "layer": ["InitConf", "LayerConf", "ParamConf", "Phase"],
        "net": ["NetConf"],
        "updater": ["UpdaterConf"],
    },
)
