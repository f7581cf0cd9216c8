"""Files of one message after another.

`kvfile`, `lmdb` and `tfrecord` read the formats with these names. `tar` reads webdatasets.
"""

__all__: list[str] = []
