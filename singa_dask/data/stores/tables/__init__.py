"""Tables with named columns, and lines of numbers.

`table`: columns by name, of the files in `table_files`. `text`: columns by place, the label first. `jsonl`: a column of
arrays. `table_part`: a file of a table; its classes are in `table_csv` and `table_lines`, with `csv_records`,
`table_json`, with `json_text`, `table_parquet` and `table_whole`. `open_parts`: files that stay open. `table_index`:
what was learned of a table. `table_scan`: where its records begin, found by several processes.
"""

__all__: list[str] = []
