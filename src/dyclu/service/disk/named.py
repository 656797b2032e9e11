"""Features that a journal's vectors were made with, as the journal stores them."""

from __future__ import annotations

import json
from pathlib import Path

from dyclu.data import Features
from dyclu.errors import FileError
from dyclu.service.settings import incompatible


def noted_features(features: Features) -> str:
    """Return features as a journal stores them.

    >>> price = Features(arm={"price": {"kind": "number", "mean": 10, "scale": 5}})
    >>> features_of(noted_features(price)) == price
    True
    """
    loadings = None if features.loadings is None else features.loadings.tolist()
    return json.dumps({"declaration": features.declaration, "loadings": loadings})


def features_of(noted: str) -> Features:
    """Return the features that a journal stored."""
    parts = json.loads(noted)
    return Features(**parts["declaration"], loadings=parts["loadings"])


def check_features(path: Path, noted: str, features: Features | None) -> None:
    """Refuse features whose vectors differ from those that a journal holds."""
    if not noted or features is None:
        return
    old = features_of(noted)
    if found := incompatible(old, features):
        raise FileError(
            f"{path} holds vectors of version {old.version} of the features, the settings declare "
            f"version {features.version}: {'; '.join(found)}; set the features back, or begin a "
            "new journal in another folder"
        )
