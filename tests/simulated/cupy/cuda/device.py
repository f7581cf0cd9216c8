"""Devices."""

from __future__ import annotations

from typing import Any

from cupy import _memory, _world

__all__ = ["Device", "get_cublas_handle"]


class Device:
    """A device by its number; whether there is such a one shows when it is used."""

    def __init__(self, device: Any = None) -> None:
        self.id = _world.current_device() if device is None else int(device)
        self._before: list[int] = []

    def use(self) -> Device:
        _world.set_device(self.id)
        return self

    def __enter__(self) -> Device:
        self._before.append(_world.current_device())
        _world.set_device(self.id)
        return self

    def __exit__(self, *error: object) -> None:
        _world.set_device(self._before.pop())

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    @property
    def compute_capability(self) -> str:
        with self:
            return "80"

    @property
    def mem_info(self) -> tuple[int, int]:
        with self:
            return _memory.device_memory() - _memory.used(self.id), _memory.device_memory()

    def synchronize(self) -> None:
        with self:
            _world.synchronize_device(self.id)


def get_cublas_handle() -> int:
    """Return the number that stands for cuBLAS on the current device."""
    return 0x5000 + _world.current_device()
