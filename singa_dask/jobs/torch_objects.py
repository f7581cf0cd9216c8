"""PyTorch objects as arguments: tensors are accepted, other objects are refused with advice."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from singa_dask.errors import ConfigError

LAYER = "Put it in a net as a layer, by its class: sd.Net([..., nn.TorchModule(Encoder, dim=64), ...])"
OBJECT = (
    "Each process creates its own module, so pass {}a function that creates it, calls load_state_dict for its values, "
    "and returns it."
)
LOSS = "Pass the class of the loss, or nn.TorchLoss(torch.nn.CrossEntropyLoss, label_smoothing=0.1)."
LOADER = "Pass the tensors or arrays themselves: data=(x, y). A job shuffles and batches them, see store_conf."


def advice_on(value: Any) -> str:
    """Return advice on what to write instead of a PyTorch object, as a sentence that begins with a blank."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if isinstance(value, torch.nn.modules.loss._Loss):
        return f" {LOSS}"
    if isinstance(value, torch.nn.Module):
        cls = type(value)
        # classes of PyTorch, such as Sequential, mean nothing without their arguments
        named = "" if cls.__module__.partition(".")[0] == "torch" else f"its class, {cls.__name__}, or "
        return f" {OBJECT.format(named)}"
    if inspect.isclass(value) and issubclass(value, torch.nn.Module):
        return f" {LAYER}."
    if isinstance(value, torch.utils.data.DataLoader | torch.utils.data.Dataset):
        return f" {LOADER}"
    if isinstance(value, torch.optim.Optimizer):
        return " Name the rule in the job: updater={'type': 'AdamW', 'learning_rate': ...}."
    return ""


def without_tensors(value: Any) -> Any:
    """Convert tensors in data to arrays, and a TensorDataset to a tuple."""
    torch = sys.modules.get("torch")
    if torch is None:
        return value
    if isinstance(value, torch.utils.data.TensorDataset):
        value = value.tensors if len(value.tensors) > 1 else value.tensors[0]
    if isinstance(value, tuple):
        return tuple(map(without_tensors, value))
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def name_of(made: str | Callable[..., Any]) -> str:
    """Return the name that a job file uses for a class or function, such as ``mymodels:Encoder``.

    Raises
    ------
    ConfigError
        Other processes cannot import the class or function by a name.
    """
    if isinstance(made, str):
        return made
    if not callable(made) or not hasattr(made, "__qualname__"):
        message = f"expected the class of a module, or a function that returns one, got {type(made).__name__}."
        raise ConfigError(f"{message}{advice_on(made)}")
    place = made.__module__
    if place == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None) or ""
        if not file.endswith(".py"):
            raise ConfigError(
                f"{made.__qualname__} is defined in this session, where other processes cannot find it. Put it in a "
                "file, import it from there, and list the file in the job: modules=['mymodels.py']."
            )
        place = Path(file).stem
    if "<" in made.__qualname__:
        raise ConfigError(f"{made.__qualname__}: other processes cannot import it. Define it at the top of a file.")
    return f"{place}:{made.__qualname__}"
