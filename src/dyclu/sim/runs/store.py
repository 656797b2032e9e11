"""Results on disk: one file per result, named by the key of its job, in ``folder/runs/``."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

from dyclu.sim.runs.jobs import Work, digest
from dyclu.sim.runs.results import Result, Timing
from dyclu.storage import make_folder, replace_file

_log = logging.getLogger(__name__)


class Store:
    """Results by key, one file each."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        make_folder(self._runs)

    def get(self, key: str) -> Result | None:
        """Return the result of a key; None if there is no file or it is damaged."""
        path = self._path(key)
        try:
            return _decoded(path.read_bytes(), key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s is damaged (%r); the run is made again", path, error)
            return None

    def put(self, key: str, job: Work, result: Result) -> None:
        """Store a result atomically."""
        stored = {
            "key": key,
            "job": job.configuration,
            "result": asdict(result),
            "digest": digest(asdict(result)),
        }
        replace_file(self._path(key), json.dumps(stored, indent=1).encode())

    def _path(self, key: str) -> Path:
        return self._runs / f"{key}.json"


def _decoded(content: bytes, key: str) -> Result:
    stored = json.loads(content)
    if stored["key"] != key:
        raise ValueError(f"it holds the run {stored['key']}")
    values = stored["result"]
    if digest(values) != stored["digest"]:
        raise ValueError("its contents do not match their digest")
    values["curve"] = tuple(values["curve"])
    values["warnings"] = tuple(values.get("warnings", ()))
    values["timing"] = Timing(**values["timing"])
    return Result(**values)
