"""Tables: named columns, and how they become the values of records.

Settings of a job
    `spec`: the columns that a job uses. `spelling`: how numbers and missing values are written. `dates`: parts of
    dates. `lags`: columns with earlier values of a time series.
Columns
    `column_names`: equal spellings, and missing columns. `column_values`: kinds of columns, missing values, and
    conversion. `list_columns`: columns of lists. `frames`: frames in memory. `kept_columns`: converts columns that are
    written beside predictions.
Learned from the training data
    `facts`: the meaning of columns; `facts_learner` learns it. `scaling`: moments and scaling of values.
Records
    `encoder`: converts columns to arrays. `row_encoder`: converts single records faster. `fill_counts`: counts
    missing values that are filled in. `percents`: percent columns that look like fractions.
Files
    `files`: reads single files. `table_reader`: finds the columns and blocks of all files, and reads rows.
    `row_selection`: the rows to read. `block_index`: blocks and facts, stored in the cache. `shared_scan`: a scan by
    several processes.
"""

__all__: list[str] = []
