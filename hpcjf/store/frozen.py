"""The study as it was resolved when the run directory was made."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from hpcjf.errors import StoreError
from hpcjf.store.atomic import write_text
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study

HEADER = "# Frozen by hpcjf when the run directory was made. Edit your own study file instead.\n"


def freeze_study(layout: RunLayout, study: Study) -> None:
    write_text(layout.study, HEADER + yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))


def load_frozen(layout: RunLayout) -> Study:
    """Raises StoreError where RUN holds no readable study."""
    try:
        return Study.model_validate(yaml.safe_load(Path(layout.study).read_text()))
    except FileNotFoundError as error:
        raise StoreError("not a run directory (no study.yaml in it)", where=str(layout.root)) from error
    except (yaml.YAMLError, ValidationError) as error:
        raise StoreError(f"damaged: {str(error).splitlines()[0]}", where=str(layout.study)) from error
