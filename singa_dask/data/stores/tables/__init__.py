"""Tables with named columns, and lines of numbers.

Stores
    `part_store`: the base class of these stores. `table`: columns by name; `table_options` has its options. `text`:
    columns by position, the label first. `jsonl`: a column of arrays.
Files of a table
    `table_files`: finds the files. `open_parts`: opens them. `table_part`: the base class of a file. `table_csv` and
    `table_lines`, with `csv_records`; `table_json`, with `json_text`; `table_parquet`; `table_in_memory`.
Knowledge about a table
    `row_selection`: selects the records to read. `table_learner`: reads the rows of blocks, and learns the facts.
    `table_columns`: columns to write beside predictions. `table_index`: blocks and facts, stored in the cache.
    `table_scan`: a scan by several processes.
"""

__all__: list[str] = []
