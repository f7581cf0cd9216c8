"""The errors of CUDA that the simulator raises, with their numbers, names and texts."""

from __future__ import annotations

TEXTS = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    901: ("cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    904: ("cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
    905: ("cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"),
    907: ("cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
}
INVALID_VALUE, NO_DEVICE, INVALID_DEVICE, INVALID_HANDLE = 1, 100, 101, 400
NOT_READY, ILLEGAL_ADDRESS, LAUNCH_FAILURE = 600, 700, 719
CAPTURE_UNSUPPORTED, CAPTURE_UNJOINED, CAPTURE_ISOLATION, CAPTURED_EVENT = 900, 904, 905, 907


class CUDARuntimeError(RuntimeError):
    """An error of the CUDA runtime; `_why` is what only a simulator can add."""

    def __init__(self, status: int, _why: str = "") -> None:
        self.status = status
        name, text = TEXTS.get(status, (f"cudaError {status}", "unknown error"))
        super().__init__(f"{name}: {text}" + (f" (simulated: {_why})" if _why else ""))


class CUDADriverError(RuntimeError):
    """An error of the CUDA driver: what a kernel with a wrong grid gives."""

    def __init__(self, status: int, _why: str = "") -> None:
        self.status = status
        super().__init__("CUDA_ERROR_INVALID_VALUE: invalid argument" + (f" (simulated: {_why})" if _why else ""))
