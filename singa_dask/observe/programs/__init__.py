"""Pass the events of a run to other programs.

`observers`: all observers of a run. `tensorboard_files`: TensorBoard. `mlflow_run`: MLflow.
"""

__all__: list[str] = []
