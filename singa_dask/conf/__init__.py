"""What a job says: its models, its wiring rules, and the reader of job files."""

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
