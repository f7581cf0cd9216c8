"""The command ``init``, which writes a job file for data.

`command` asks, prints and writes what `singa_dask.survey` finds out about the data. `job_file` has the text of the job,
from `record_job` or `text_job`. `layer_text` writes a layer.
"""

__all__: list[str] = []
