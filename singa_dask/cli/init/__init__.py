"""The command ``init``, which writes a job file for data.

`command` surveys the data with `singa_dask.survey`, asks open questions, and writes the job file. `job_file` makes the
text of the job, with `record_job` or `text_job`. `layer_text` writes a layer.
"""

__all__: list[str] = []
