"""Models of a job, and rules that check it. `files` reads the job files.

Common to all models
    `base`: the class `Conf`. `kinds`: types of values. `parts`: registered classes with options, and models
    that name them. `mistakes`: messages. `foreign_names`: names that other programs use.
Models
    `job`: a whole job. `cluster`, `updater`, `net`, `layer`, `metrics`, `profile`: its parts. `wiring_rules`: checks of
    the sources of layers. `warnings`: likely mistakes in a valid job.
Documentation and editors
    `describe`: describes a part. `json_schema`: the schema of job files. `nn_stub`: types of `singa_dask.nn`.

Names are imported on first use, so that a layer can use a model without loading the reader of job files.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.conf.base import Conf
    from singa_dask.conf.cluster import ClusterConf
    from singa_dask.conf.files.jobfile import JobFile, load, loads
    from singa_dask.conf.job import JobConf
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
        "files.jobfile": ["JobFile", "load", "loads"],
        "json_schema": ["schema"],
        "layer": ["InitConf", "LayerConf", "ParamConf", "Phase"],
        "net": ["NetConf"],
        "updater": ["UpdaterConf"],
    },
)
