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
"""

from singa_dask.conf.base import Conf
from singa_dask.conf.cluster import ClusterConf, ListenConf, WorkersConf
from singa_dask.conf.job import AlgConf, JobConf
from singa_dask.conf.jobfile import JobFile, load, loads
from singa_dask.conf.json_schema import schema
from singa_dask.conf.layer import InitConf, LayerConf, ParamConf, Phase
from singa_dask.conf.net import LayerGroupConf, NetConf
from singa_dask.conf.parts import PartConf
from singa_dask.conf.updater import LRGenConf, UpdaterConf
from singa_dask.conf.warnings import find_warnings

__all__ = [
    "AlgConf",
    "ClusterConf",
    "Conf",
    "InitConf",
    "JobConf",
    "JobFile",
    "LRGenConf",
    "LayerConf",
    "LayerGroupConf",
    "ListenConf",
    "NetConf",
    "ParamConf",
    "PartConf",
    "Phase",
    "UpdaterConf",
    "WorkersConf",
    "find_warnings",
    "load",
    "loads",
    "schema",
]
