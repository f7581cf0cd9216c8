"""Files of one message after another.

`kvfile`, `lmdb`, `tfrecord`; `tar`: webdataset.
"""

__all__: list[str] = []
