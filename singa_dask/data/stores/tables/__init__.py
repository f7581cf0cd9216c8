"""Stores of tables.

`part_store`: the base class of these stores. `table_store`: columns by name; `table_options` has its options.
`text_store`: columns by position, the label first. `jsonl_store`: a column of arrays. `table_files`: finds the files of
a table. `written_columns`: reads columns to write them beside predictions.
"""

__all__: list[str] = []
