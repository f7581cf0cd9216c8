"""Surveys of data: collect the properties of records that are needed to write a job for them.

Data
    `survey`: finds the data, their test set and format. `arrays`: surveys arrays and pictures. `tables`: surveys a
    table, step by step. `outputs`: labels and targets of a table. `choice`: features of a table. `options`: the user's
    options. `results`: the classes that a survey returns. `split`: training and test set.
Columns of tables
    `named_columns`: finds the columns that options name. `read_table`: opens tables and reads their columns, CSV by
    its `csv_head`. `columns`: a column and its values. `table_survey`: the columns of a table. `counts`: counts large
    tables on Dask workers. `column_kinds`: ids, dates, categories, texts. `numbers`: numbers written as text.
    `number_faults`: numbers that cannot be read. `spellings`: how values of CSV are written. `date_columns`: parts of
    dates. `series`: time series.
Findings
    `notes`: how values are read. `leaks`: features that determine the label alone. `never_learned`: classes and
    categories that only test records have. `baseline`: scores of simple models, to compare a net with. `logistic`: a
    logistic regression. `statistics`: ranges, ids and duplicates of a store.
"""

__all__: list[str] = []
