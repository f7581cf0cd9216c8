"""Read files of tables in runs of rows, as Arrow tables.

`table_part`: the base class of a file. `csv_part`, `csv_text`: CSV. `number_lines`: lines of numbers without names.
`json_part`, `json_text`: JSON lines. `parquet_part`, `row_groups`: Parquet. `columnar`, `whole_files`: other formats,
converted to Parquet in memory. `open_parts`: opens the files of a table. `folder_keys`: columns from names of
directories.
"""

__all__: list[str] = []
