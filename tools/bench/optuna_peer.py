"""Optuna's side of tools/bench/controller, run by the interpreter of its own environment.

optuna_peer.py FILE TRIALS fills a journal; optuna_peer.py FILE opens it again and prints CPU-s of the import and of the
opening, trials, version, and on stderr /proc/self/status.
"""

import sys
import time
from pathlib import Path
from typing import Any

before = time.process_time()
import optuna  # noqa: E402
from optuna.storages import JournalStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402

imported = time.process_time() - before


def objective(trial: Any) -> float:
    rate: float = trial.suggest_float("learning_rate", 1e-7, 1e-4, log=True)
    trial.suggest_categorical("lr_scheduler", ["constant", "cosine"])
    trial.suggest_float("clip_range", 0.05, 0.4)
    trial.suggest_float("grad_clip", 0.1, 2.0)
    trial.suggest_float("kl_coef", 1e-4, 0.1, log=True)
    return rate * int(trial.suggest_int("rollouts", 2, 16))


optuna.logging.set_verbosity(optuna.logging.ERROR)
before = time.process_time()
storage = JournalStorage(JournalFileBackend(sys.argv[1]))
if len(sys.argv) == 3:
    sampler = optuna.samplers.RandomSampler(1)
    optuna.create_study(study_name="bench", storage=storage, sampler=sampler).optimize(objective, int(sys.argv[2]))
else:
    trials = len(optuna.load_study(study_name="bench", storage=storage).trials)
    print(imported, time.process_time() - before, trials, optuna.__version__)
    print(Path("/proc/self/status").read_text(), file=sys.stderr)
