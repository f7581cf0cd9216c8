"""HDFS: the client of an ``hdfs://`` URL, and an fsspec filesystem on hdfs-native.

`clients`
    Selects the client for a URL.
`filesystem`
    The filesystem on hdfs-native.
`connection`
    The clients of this process for one cluster.
`native_errors`, `block_locations`, `hadoop_conf`
    Errors of hdfs-native, block locations of files, and Hadoop's configuration.
"""

__all__: list[str] = []
