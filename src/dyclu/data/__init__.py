"""Data of a product: features by name, and logs of decisions from frames and files."""

from dyclu.data.catalogue import Catalogue
from dyclu.data.chunk import Chunk
from dyclu.data.features import Features
from dyclu.data.log import Log
from dyclu.data.offers import Valid
from dyclu.data.transformed import Transformed
from dyclu.data.vectors.columns import Category, Number, Text
from dyclu.data.vectors.weights import Weight

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
