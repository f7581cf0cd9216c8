"""Codecs: conversion between bytes and arrays, independent of stores.

Messages
    `protobuf`: the wire format. `record`: records of SINGA and Caffe. `singa_blobs`: SINGA's checkpoint files.
Records
    `labels`, `values`: their fields. `record_schema`: dtypes and shapes. `salvage`: blocks with bad records.
Tables
    `columns`: values of columns. `numbers`: numbers written as text. `category_names`: names of categories and classes.
    `tokens`: texts. `lags`: earlier values.
    `table_spec`: which columns a job uses. `table_statistics` learns `table_facts`, by which `table_encoder` makes
    arrays.
In memory
    `plain_arrays`: arrays. `data_frames`: frames.
Learned from training data
    `scaling`: moments and scaling of columns. `learned`: what checkpoints keep.
"""

__all__: list[str] = []
