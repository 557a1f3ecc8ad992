"""Joint-fidelity hyperparameter optimisation for RL post-training of language models on Slurm clusters."""

__version__ = "0.1.0"
