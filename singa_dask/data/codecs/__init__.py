"""Codecs: conversion between bytes and arrays of single records, independent of stores and tables.

Messages
    `protobuf`: the wire format. `record`: records of SINGA and Caffe. `singa_blobs`: SINGA's checkpoint files.
Records
    `record_schema`: dtypes and shapes of fields. `record_values`: the numbers of records, and their weights. `labels`:
    the field of the label. `plain_arrays`: arrays in memory. `tokens`: text as numbered tokens. `salvage`: reads blocks
    with bad records.
Classes
    `class_lists`: reads lists of class names. `class_types`: converts class names to the type of the labels.
    `equal_names`: spellings that count as one name of a class or category.
"""

__all__: list[str] = []
