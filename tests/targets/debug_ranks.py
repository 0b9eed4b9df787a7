"""A rank of torch.distributed: PORT, --fail_ranks RANK...: those raise between two collectives."""
import argparse
import os
import sys

import torch
import torch.distributed as dist

from probing import Debugger

parser = argparse.ArgumentParser()
parser.add_argument("--fail_ranks", type=int, nargs="+", default=[1])
arguments = parser.parse_args()
torch.set_num_threads(1)


@Debugger.attach_on_error()
def process():
    rank = dist.get_rank()
    tensor = torch.ones(10) * rank
    dist.barrier()
    if rank in arguments.fail_ranks:
        tensor[20 + rank]
    dist.all_reduce(tensor)


print("ready", flush=True)
sys.stdin.readline()
dist.init_process_group("gloo")
try:
    process()
except IndexError as error:
    print("raised", error, flush=True)
    sys.stdin.readline()  # whoever ends first breaks the others' connections
except RuntimeError:
    print("lost a peer", flush=True)
