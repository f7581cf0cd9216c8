"""Codecs: conversion between bytes and arrays, one file per format, independent of stores."""

from __future__ import annotations

from singa_dask.data.codecs.kvfile import KVFile, KVFileWriter
from singa_dask.data.codecs.record import encode_record

__all__ = ["KVFile", "KVFileWriter", "encode_record"]
