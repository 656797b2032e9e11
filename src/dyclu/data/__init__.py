"""Data of a product: features by name, and logs of decisions from frames and files."""

from dyclu.data.catalogue import Catalogue
from dyclu.data.chunk import Chunk
from dyclu.data.columns import Category, Number, Text
from dyclu.data.features import Features, Weight
from dyclu.data.log import Log
from dyclu.data.offers import Valid
from dyclu.data.transformed import Transformed

__all__ = [
    "Catalogue",
    "Category",
    "Chunk",
    "Features",
    "Log",
    "Number",
    "Text",
    "Transformed",
    "Valid",
    "Weight",
]
