"""The study as it was resolved when the run directory was made."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from hpcjf.errors import StoreError
from hpcjf.store.atomic import write_text
from hpcjf.store.disk import disk_errors
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study

_RESTORE = "restore it from a copy"
HEADER = "# Frozen by hpcjf when the run directory was made. Edit your own study file instead.\n"


def freeze_study(layout: RunLayout, study: Study) -> None:
    write_text(layout.study, HEADER + yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))


def load_frozen(layout: RunLayout) -> Study:
    """Raises StoreError where RUN holds no readable study."""
    try:
        with disk_errors(layout.study, keep=(FileNotFoundError,)):
            text = Path(layout.study).read_text(encoding="utf-8")
        return Study.model_validate(yaml.safe_load(text))
    except FileNotFoundError as error:
        raise StoreError("not a run directory (no study.yaml in it)", where=str(layout.root)) from error
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"])) or "study"
        raise StoreError(f"damaged: {key}: {fault['msg']}", where=str(layout.study), fix=_RESTORE) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StoreError(f"damaged: {error}", where=str(layout.study), fix=_RESTORE) from error
