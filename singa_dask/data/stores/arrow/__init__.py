"""Arrow and Parquet files.

`arrow` and `parquet`: the two formats. `arrow_columns`: columns in both formats. `row_groups`: reads the row groups of
a Parquet file. `columnar`: reads Feather and ORC as Parquet.
"""

__all__: list[str] = []
