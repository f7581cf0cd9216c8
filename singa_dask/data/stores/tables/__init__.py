"""Tables with named columns, and lines of numbers.

Stores
    `part_store`: the base of all. `table`: columns by name, with `table_options`. `text`: columns by position, the
    label first. `jsonl`: a column of arrays.
Files of a table
    `table_files`: which they are. `open_parts`: opens them. `table_part`: the base class of a file.
    `table_csv` and `table_lines`, with `csv_records`; `table_json`, with `json_text`; `table_parquet`;
    `table_in_memory`.
Knowledge about a table
    `row_selection`: the records that are read. `table_learner`: finds columns and blocks, and learns the facts.
    `table_columns`: columns to write beside predictions.
    `table_index`: blocks and facts, kept in the cache. `table_scan`: a scan by several processes.
"""

__all__: list[str] = []
