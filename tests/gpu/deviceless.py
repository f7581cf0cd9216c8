"""Builds the plans of cuDNN for the convolutions of the nets in configs/, for an H100 that is not there; prints them.

Run by test_cudnn in a process of its own, which finds `DRIVER` and `RUNTIME` in place of CUDA's libraries: planning
asks them whether there is a device, and loads what it compiles; nothing is run.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator

import numpy as np

from singa_dask.ops import BFLOAT16
from singa_dask.ops.cupy.cudnn import FORWARD, GRAD_INPUT, GRAD_WEIGHT, CudnnConvolution, plans

__all__ = ["DRIVER", "RUNTIME", "convolutions", "main"]

# What cuDNN looks for in CUDA's driver when it plans.
DRIVER = "".join(
    f"int {name}(void) {{ return 0; }}\n"
    for name in """
    cuCtxGetCurrent cuCtxGetLimit cuCtxPopCurrent cuCtxPushCurrent cuDeviceGet cuDeviceGetCount cuGetErrorName
    cuGetErrorString cuKernelGetAttribute cuKernelGetFunction cuKernelSetAttribute cuLaunchCooperativeKernel
    cuLaunchKernel cuLaunchKernelEx cuLibraryLoadFromFile cuLibraryUnload cuLinkAddData cuLinkComplete cuLinkCreate
    cuLinkDestroy
    cuModuleGetFunction cuModuleLoadData cuModuleUnload cuOccupancyMaxPotentialClusterSize cuStreamGetCtx
    cuTensorMapEncodeIm2col cuTensorMapEncodeTiled
    """.split()
)
DRIVER += """
int cuDriverGetVersion(int* version) { *version = 12090; return 0; }
int cuLibraryLoadData(void** library) { *library = (void*)8; return 0; }
int cuLibraryGetKernel(void** kernel) { *kernel = (void*)8; return 0; }
"""
# What its front end looks for in CUDA's runtime; 75 and 76 are the two parts of the compute capability.
RUNTIME = """
int cudaGetDevice(int* device) { *device = 0; return 0; }
int cudaGetLastError(void) { return 0; }
const char* cudaGetErrorString(int error) { return "not there"; }
int cudaRuntimeGetVersion(int* version) { *version = 12090; return 0; }
int cudaDeviceGetAttribute(int* value, int which, int device) { *value = which == 75 ? 9 : 0; return 0; }
/* the front end reads major and minor, which are there in CUDA 12 */
int cudaGetDeviceProperties(char* all, int device) { *(int*)(all + 360) = 9; *(int*)(all + 364) = 0; return 0; }
int cudaGetDeviceProperties_v2(char* all, int device) { return cudaGetDeviceProperties(all, device); }
"""

H100 = {
    "version": 1,
    "deviceName": "NVIDIA H100 80GB HBM3",
    "deviceVer": 900,
    "driverVer": 12090,
    "cudaDeviceId": 0,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "totalGlobalMem": 85031714816,
    "multiProcessorCount": 132,
    "smCountOrigin": 0,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000,
    "memoryBusWidth": 5120,
    "l2CacheSize": 52428800,
    "warpSize": 32,
    "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024,
    "oversizedSharedMemoryPerBlock": 0,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "maxBlockSize": [1024, 1024, 64],
    "maxGridSize": [2147483647, 65535, 65535],
}
# Of nets in configs/, and odd ones: images (C, H, W), filters, kernel, stride, padding.
CIFAR = [((3, 32, 32), 32, 5, 1, 2), ((32, 15, 15), 32, 5, 1, 2), ((32, 7, 7), 64, 5, 1, 2)]
ALEXNET = [
    ((3, 227, 227), 96, 11, 4, 0),
    ((96, 27, 27), 256, 5, 1, 2),
    ((256, 13, 13), 384, 3, 1, 1),
    ((384, 13, 13), 384, 3, 1, 1),
    ((384, 13, 13), 256, 3, 1, 1),
]
LENET = [((1, 28, 28), 20, 5, 1, 0), ((20, 12, 12), 50, 5, 1, 0)]
ODD = [((17, 6, 5), 19, 3, 2, 1), ((2, 3, 3), 2, 2, 1, 3), ((5, 1, 1), 3, 1, 1, 0)]
NETS = [(100, CIFAR), (1024, CIFAR), (256, ALEXNET), (64, LENET), (3, ODD)]
TYPES = [(np.dtype(np.float32), False), (np.dtype(np.float32), True), (BFLOAT16, False)]


def convolutions() -> Iterator[CudnnConvolution]:
    for n, layers in NETS:
        for (channels, height, width), filters, kernel, stride, pad in layers:
            sizes = [(size + 2 * pad - kernel) // stride + 1 for size in (height, width)]
            shapes = (n, channels, height, width), (filters, channels, kernel, kernel), (n, filters, *sizes)
            for dtype, tf32 in TYPES:
                around = (stride, stride), (pad, pad), dtype
                for biased, relu in ((False, False), (False, True), (True, False), (True, True)):
                    yield CudnnConvolution(FORWARD, *shapes, *around, biased, relu, tf32=tf32)
                for kind in (GRAD_INPUT, GRAD_WEIGHT):
                    yield CudnnConvolution(kind, *shapes, *around, tf32=tf32)


def main() -> None:
    cudnn = importlib.import_module("cudnn")
    device = cudnn.create_device_properties(json.dumps(H100))
    for wanted in convolutions():
        built = list(plans(cudnn, wanted, device_property=device))
        names = [plan.name for plan in built]
        (again,) = plans(cudnn, wanted, names[-1], device_property=device)
        sizes = [plan.workspace_bytes for plan in built]
        print(json.dumps({"key": wanted.key, "names": names, "sizes": sizes, "again": again.name}))


if __name__ == "__main__":
    main()
