"""One rank of a job of torch.distributed that has whatever trouble it is told, until it is told `on`: what
contrib/recipes ask about. Rank 2 is the bad one, but for memory and NaN: there it is rank 1."""
import os
import select
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
kept = []


class Samples(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        if rank == 2:
            time.sleep(0.15)  # a slow disk, and slower than a busy machine makes the others
        return torch.ones(8) * i


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.inner(x).relu())


def told_on():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def reduce_gradients():
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def step(batch):
    optimizer.zero_grad()
    model(batch).sum().backward()
    reduce_gradients()
    optimizer.step()


def slow_loader():
    for batch in DataLoader(Samples(), batch_size=2):
        step(batch)


def own_rows():
    import dataclasses
    import probing  # there is one once there is an agent

    @probing.table
    @dataclasses.dataclass
    class Loss:
        value: float

    probing.set_role(dp=rank, tp=0)
    for number in range(3):
        with probing.span("step", number=number):
            Loss(0.5 * number).save()


def augment():
    while not told_on():
        sum(range(10000))


def busy():
    if rank == 2:
        augment()
    reduce_gradients()


def leak():
    while not told_on():
        kept.append(bytearray(1 << 20 if rank == 1 else 1))
        time.sleep(0.02)


def not_finite():
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    if rank == 1:
        model.inner.weight.grad[3, 4] = float("nan")


def and_reduced():
    reduce_gradients()
    optimizer.step()


def bad_sample():
    if rank == 2:
        raise ValueError("bad sample")
    reduce_gradients()


dist.init_process_group("gloo")
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
step(torch.ones(2, 8))
print("ready")
for line in sys.stdin:
    if line != "on\n":
        globals()[line.strip()]()
    print("done", line.strip())
