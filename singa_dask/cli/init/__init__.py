"""The command ``init``, which inspects data and writes a job file for them.

`command` has the command. `survey` finds out the format, `records` has options and results. `tables`, `columns`,
`counts`, `numbers`, `series` and `table_notes` inspect tables. `never_learned` warns about what only test records have,
and `leaks` about features that tell the label alone. `baseline` fits models to beat, one of them by `logistic`, and
`job_file` writes the job file.
"""

__all__: list[str] = []
