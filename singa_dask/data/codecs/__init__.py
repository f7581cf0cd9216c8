"""Codecs: conversion between bytes and arrays, independent of stores.

Messages
    `protobuf`: the wire format. `record`: records of SINGA and Caffe. `singa_blobs`: SINGA's checkpoint files.
Records
    `labels`, `values`: fields of records. `record_schema`: dtypes and shapes of fields. `salvage`: reads blocks with
    bad records.
Tables
    `columns`: the values of columns. `numbers`: numbers written as text. `percents`: percent columns that look like
    fractions. `dates`: parts of dates. `category_names`: names of categories and classes. `class_values`: the type of
    classes. `tokens`: text as numbered tokens. `lags`: columns with earlier values of a time series. `column_reading`:
    converts columns that are written beside predictions. `fill_counts`: counts missing values that are filled in.
    `table_spec`: the columns that a job uses. `table_statistics`: learns `table_facts` from the training data.
    `table_encoder`: converts columns to arrays, with these facts.
In memory
    `plain_arrays`: arrays. `data_frames`: frames.
Learned from training data
    `scaling`: moments and scaling of columns. `learned`: what checkpoints store about the training data.
"""

__all__: list[str] = []
