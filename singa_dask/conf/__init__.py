"""What a job says: its models, its wiring rules, and the reader of job files.

What all models share
    `base`: the class `Conf`. `kinds`: kinds of values. `parts`: parts that name a registered class. `findings`:
    mistakes in plain words. `names`: names that other programs use.
The models
    `job`: a whole job. `cluster`, `updater`, `net`, `layer`, `watched`, `profile`: its parts. `wiring_rules`: checks of
    a net by names.
Job files
    `jobfile`: reads one. `places`: the tree that it becomes. `yaml_text`: YAML. `singa_text`, `singa_job`,
    `singa_rules`: SINGA's own format. `blocks`, `cluster_file`, `overrides`: what changes the tree. `warnings`: likely
    mistakes of a valid job.
For people and editors
    `describe`: a part in words. `json_schema`: the schema of job files. `nn_stub`: types of `singa_dask.nn`.

What others use most is imported on first use, so that a layer that names a part of a job loads no reader of job files.
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
