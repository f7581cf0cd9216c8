"""configs/digits/mlp.yaml as a user of Ray Train writes it, with a TorchTrainer of two workers.

``python benchmarks/frameworks_ray.py FOLDER SHOW``
"""

import os
import sys
import tempfile

import numpy as np
import pyarrow.ipc
import ray
import torch
from ray import train as ray_train
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, BATCH, TEST, SAVE = 2500, 64, 250, 250


def read(root: str, name: str) -> TensorDataset:
    table = pyarrow.ipc.open_file(pyarrow.memory_map(f"{root}/data/digits/{name}.arrow")).read_all()
    pixels = np.frombuffer(b"".join(table["pixel"].to_pylist()), np.uint8).reshape(-1, 784).astype(np.float32) / 255
    return TensorDataset(torch.from_numpy(pixels), torch.from_numpy(table["label"].to_numpy().astype(np.int64)))


def train_worker(conf: dict) -> None:
    context = ray_train.get_context()
    rank, n_ranks = context.get_world_rank(), context.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = nn.Sequential(
        *(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.3)),
        nn.Linear(256, 10),
    )
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0002)
    schedule = torch.optim.lr_scheduler.StepLR(sgd, 400, 0.5)
    train, test = read(conf["root"], "train"), read(conf["root"], "test")
    loader = prepare_data_loader(DataLoader(train, BATCH // n_ranks, shuffle=True, drop_last=True))
    step, found = 0, ray_train.get_checkpoint()
    if found:
        with found.as_directory() as folder:
            state = torch.load(f"{folder}/state.pt")
        net.load_state_dict(state["net"])
        sgd.load_state_dict(state["sgd"])
        schedule.load_state_dict(state["schedule"])
        step = state["step"]
    shared = prepare_model(net)
    with open(f"{conf['folder']}/log-{rank}", "a") as log:
        print(f"process {rank} {os.getpid()}", file=log, flush=True)
        while step < STEPS:
            loader.sampler.set_epoch(step // len(loader))
            for x, y in loader:
                sgd.zero_grad()
                loss = nn.functional.cross_entropy(shared(x), y)
                loss.backward()
                sgd.step()
                schedule.step()
                if rank == 0 and step % conf["show"] == 0:
                    print(f"step {step} {loss.item():.4f}", file=log, flush=True)
                step += 1
                if rank == 0 and step % TEST == 0:
                    net.eval()
                    with torch.no_grad():
                        scores, labels = net(test.tensors[0]), test.tensors[1]
                    print(f"accuracy {(scores.argmax(1) == labels).float().mean():.4f}", file=log, flush=True)
                    net.train()
                if step % SAVE == 0:
                    with tempfile.TemporaryDirectory() as folder:
                        if rank == 0:
                            state = {"net": net.state_dict(), "sgd": sgd.state_dict(), "step": step}
                            torch.save({**state, "schedule": schedule.state_dict()}, f"{folder}/state.pt")
                        saved = ray_train.Checkpoint.from_directory(folder) if rank == 0 else None
                        ray_train.report({"loss": loss.item()}, checkpoint=saved)
                if step == STEPS:
                    break


def main(folder: str, show: int) -> None:
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
    TorchTrainer(
        train_worker,
        train_loop_config={"root": os.getcwd(), "folder": folder, "show": show},
        scaling_config=ray_train.ScalingConfig(num_workers=2),
        run_config=ray_train.RunConfig(storage_path=folder, failure_config=ray_train.FailureConfig(max_failures=1)),
    ).fit()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), int(sys.argv[2]))
