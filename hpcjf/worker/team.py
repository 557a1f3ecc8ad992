"""The processes of one attempt: their number and ranks come from the scheduler, by way of submitit."""

from __future__ import annotations

import os

import submitit
from submitit.helpers import TorchDistributedEnvironment


def join() -> bool:
    """Meet the attempt's other processes, if there are any. Whether this one is the first, which writes."""
    try:
        job = submitit.JobEnvironment()
        count = job.num_tasks
    except RuntimeError:  # not in a job of submitit's
        return True
    if count == 1:
        return True
    TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
    # the batch script's node is that of the first process; names of nodes need not resolve on them
    own = "127.0.0.1" if job.num_nodes == 1 else os.environ.get("SLURM_LAUNCH_NODE_IPADDR")
    os.environ["MASTER_ADDR"] = own or os.environ["MASTER_ADDR"]
    from hpcjf.training.distributed import meet  # torch: seconds of import

    meet(job.local_rank)
    return job.global_rank == 0
