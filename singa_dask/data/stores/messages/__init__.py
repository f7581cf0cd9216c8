"""Files of one message after another.

`kvfile`, `lmdb` and `tfrecord` are named after their formats. `tar`: webdataset.
"""

__all__: list[str] = []
