"""What a job of ``tools/record_surface`` runs: several attempts, one after the other, in one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import AttemptResult, AttemptSpec
from hpcjf.worker.entry import run_attempt


def run_chunk(path: str) -> None:
    """Run the specs that the JSON file names, from the folder above it on. An interruption ends the whole chunk."""
    root = Path(path).parents[1]
    for name in json.loads(Path(path).read_text()):
        run_attempt(str(root / name))
        spec, layout = AttemptSpec.read(root / name), RunLayout((root / name).parents[3])
        shutil.rmtree(layout.entry(spec.config_id, spec.model, spec.training_seed), ignore_errors=True)
        if AttemptResult.read((root / name).with_name("result.json")).cause.infrastructure:
            break
