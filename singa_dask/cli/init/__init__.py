"""The command ``init``, which inspects data and writes a job file for them.

`command` has the command. `survey` finds out the format, `records` has options and results. `tables`, `columns`,
`counts`, `numbers` and `series` inspect tables. `never_learned` warns about what only test records have. `baseline`
fits models to beat, one of them by `logistic`, and `job_file` writes the job file.
"""

__all__: list[str] = []
