"""The processes of one attempt: their number and ranks come from the scheduler, by way of submitit."""

from __future__ import annotations

import datetime
import os

import submitit
from submitit.helpers import TorchDistributedEnvironment

_PATIENCE = datetime.timedelta(minutes=30)
"""How long a process waits for another one's share of a step."""


def join() -> bool:
    """Meet the attempt's other processes, if there are any. Whether this one is the first, which writes."""
    try:
        job = submitit.JobEnvironment()
        count = job.num_tasks
    except RuntimeError:  # not in a job of submitit's
        return True
    if count == 1:
        return True
    import torch
    from torch import distributed

    TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
    # the batch script's node is that of the first process; names of nodes need not resolve on them
    own = "127.0.0.1" if job.num_nodes == 1 else os.environ.get("SLURM_LAUNCH_NODE_IPADDR")
    os.environ["MASTER_ADDR"] = own or os.environ["MASTER_ADDR"]
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(job.local_rank % gpus)
    distributed.init_process_group("nccl" if gpus else "gloo", timeout=_PATIENCE)
    return job.global_rank == 0


def leave() -> None:
    """Part from the others, who are at the same place."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
