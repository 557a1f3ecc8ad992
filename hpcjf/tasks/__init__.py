"""Prompts, references and verifiable rewards, without torch."""

from hpcjf.tasks.base import Embedder, Row, TaskData
from hpcjf.tasks.load import load_task
from hpcjf.tasks.prompts import render
from hpcjf.tasks.rewards import needs_embedder, score

__all__ = ["Embedder", "Row", "TaskData", "load_task", "needs_embedder", "render", "score"]
