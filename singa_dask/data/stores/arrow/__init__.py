"""Arrow and Parquet files.

`arrow` and `parquet`, with `arrow_columns` for both. `row_groups`: those of a Parquet file. `columnar`: Feather and
ORC, read as Parquet.
"""

__all__: list[str] = []
