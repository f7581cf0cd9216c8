"""Files of tables: each is read in runs of rows, as Arrow tables.

`table_part`: the base class of a file. `csv_part`, with `csv_text`; `number_lines`: lines of numbers without names;
`json_part`, with `json_text`; `parquet_part`, with `row_groups`. `columnar`, `whole_files`: other formats, converted to
Parquet in memory. `open_parts`: opens the files of a table. `folder_keys`: columns from names of directories.
"""

__all__: list[str] = []
