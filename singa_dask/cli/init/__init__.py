"""The verb ``init``: it looks at data, and writes a job file for them.

`command`: the verb. `survey`, `records`: what the data are. `tables`, `columns`, `counts`, `numbers`: tables.
`baseline`: what to beat. `job_file`: the job file.
"""

__all__: list[str] = []
