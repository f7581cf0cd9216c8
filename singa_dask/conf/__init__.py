"""What a job says: its models, its wiring rules, and the reader of job files."""

from __future__ import annotations

from singa_dask.conf.cluster import ClusterConf
from singa_dask.conf.input import (
    CacheConf,
    CharRNNConf,
    LMDBDataConf,
    MnistConf,
    OneHotConf,
    RGBImageConf,
    ShardDataConf,
    StoreConf,
)
from singa_dask.conf.job import AlgConf, JobConf
from singa_dask.conf.jobfile import JobFile, load
from singa_dask.conf.json_schema import schema
from singa_dask.conf.layer import InitConf, LayerConf, ParamConf
from singa_dask.conf.model import Conf
from singa_dask.conf.net import LayerGroupConf, NetConf
from singa_dask.conf.neuron import (
    ActivationConf,
    ArgSortConf,
    BMConf,
    ConcateConf,
    ConvolutionConf,
    DropoutConf,
    DummyConf,
    EmbeddingConf,
    GRUConf,
    InnerProductConf,
    LRNConf,
    LSTMConf,
    PoolingConf,
    RBMConf,
    ReLUConf,
    RNNConf,
    RNNDummyConf,
    SamplingConf,
    SliceConf,
    SoftmaxConf,
    SoftmaxLossConf,
    SplitConf,
)
from singa_dask.conf.part import PartConf
from singa_dask.conf.phase import Phase
from singa_dask.conf.updater import (
    LRGenConf,
    UpdaterConf,
)
from singa_dask.conf.warnings import find_warnings

__all__ = [
    "ActivationConf",
    "AlgConf",
    "ArgSortConf",
    "BMConf",
    "CacheConf",
    "CharRNNConf",
    "ClusterConf",
    "ConcateConf",
    "Conf",
    "ConvolutionConf",
    "DropoutConf",
    "DummyConf",
    "EmbeddingConf",
    "GRUConf",
    "InitConf",
    "InnerProductConf",
    "JobConf",
    "JobFile",
    "LMDBDataConf",
    "LRGenConf",
    "LRNConf",
    "LSTMConf",
    "LayerConf",
    "LayerGroupConf",
    "MnistConf",
    "NetConf",
    "OneHotConf",
    "ParamConf",
    "PartConf",
    "Phase",
    "PoolingConf",
    "RBMConf",
    "RGBImageConf",
    "RNNConf",
    "RNNDummyConf",
    "ReLUConf",
    "SamplingConf",
    "ShardDataConf",
    "SliceConf",
    "SoftmaxConf",
    "SoftmaxLossConf",
    "SplitConf",
    "StoreConf",
    "UpdaterConf",
    "find_warnings",
    "load",
    "schema",
]
