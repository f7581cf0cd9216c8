"""Blocks of SINGA's deprecated input layers, which `singa_rules` replaces by layers of today."""

from __future__ import annotations

from singa_dask.conf.model import Conf, Count, Positive, Size

__all__ = ["DEPRECATED", "LMDBDataConf", "MnistConf", "ShardDataConf"]


class ShardDataConf(Conf):
    """``sharddata_conf``: SINGA's deprecated data layer (DataProto)."""

    path: str
    """Folder or file of the records."""
    batchsize: Size
    """Records a step for the whole worker group."""
    random_skip: Count = 0
    """Start at a random record among the first this many."""


class LMDBDataConf(ShardDataConf):
    """``lmdbdata_conf``: SINGA's deprecated LMDB layer (DataProto)."""


class MnistConf(Conf):
    """``mnist_conf``: SINGA's deprecated parser of digit images; the distortion keys were never used."""

    norm_a: Positive = 1.0
    """Divides each pixel."""
    norm_b: float = 0.0
    """Subtracted after the division."""
    kernel: Count = 0
    """Unused."""
    sigma: float = 0.0
    """Unused."""
    alpha: float = 0.0
    """Unused."""
    beta: float = 0.0
    """Unused."""
    gamma: float = 0.0
    """Unused."""
    resize: Count = 0
    """Unused."""
    elastic_freq: Count = 0
    """Unused."""


DEPRECATED: dict[str, type[Conf]] = {each.block_key: each for each in (LMDBDataConf, MnistConf, ShardDataConf)}
