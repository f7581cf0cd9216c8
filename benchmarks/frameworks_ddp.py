"""configs/digits/mlp.yaml as a user of PyTorch writes it: DistributedDataParallel over gloo, started by torchrun.

``torchrun --standalone --nproc-per-node 2 --max-restarts 1 benchmarks/frameworks_ddp.py FOLDER SHOW``
"""

import os
import sys

import numpy as np
import pyarrow.ipc
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, BATCH, TEST, SAVE = 2500, 64, 250, 250


def read(name: str) -> TensorDataset:
    table = pyarrow.ipc.open_file(pyarrow.memory_map(f"data/digits/{name}.arrow")).read_all()
    pixels = np.frombuffer(b"".join(table["pixel"].to_pylist()), np.uint8).reshape(-1, 784).astype(np.float32) / 255
    return TensorDataset(torch.from_numpy(pixels), torch.from_numpy(table["label"].to_numpy().astype(np.int64)))


def main(folder: str, show: int) -> None:
    distributed.init_process_group("gloo")
    rank, n_ranks = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = nn.Sequential(
        *(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.3)),
        nn.Linear(256, 10),
    )
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0002)
    schedule = torch.optim.lr_scheduler.StepLR(sgd, 400, 0.5)
    train, test = read("train"), read("test")
    sampler = DistributedSampler(train, n_ranks, rank, seed=1)
    loader = DataLoader(train, BATCH // n_ranks, sampler=sampler, drop_last=True)
    checkpoint, step = f"{folder}/checkpoint.pt", 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        net.load_state_dict(state["net"])
        sgd.load_state_dict(state["sgd"])
        schedule.load_state_dict(state["schedule"])
        step = state["step"]
    shared = DistributedDataParallel(net)
    print(f"process {rank} {os.getpid()}", flush=True)
    while step < STEPS:
        sampler.set_epoch(step // len(loader))
        for x, y in loader:
            sgd.zero_grad()
            loss = nn.functional.cross_entropy(shared(x), y)
            loss.backward()
            sgd.step()
            schedule.step()
            if rank == 0 and step % show == 0:
                print(f"step {step} {loss.item():.4f}", flush=True)
            step += 1
            if rank == 0 and step % TEST == 0:
                net.eval()
                with torch.no_grad():
                    scores, labels = net(test.tensors[0]), test.tensors[1]
                print(f"accuracy {(scores.argmax(1) == labels).float().mean():.4f}", flush=True)
                net.train()
            if rank == 0 and step % SAVE == 0:
                state = {"net": net.state_dict(), "sgd": sgd.state_dict(), "schedule": schedule.state_dict()}
                torch.save({**state, "step": step}, f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)
            if step == STEPS:
                break
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
