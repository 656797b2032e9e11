"""Data of a product: features by name, and logs of decisions from frames and files."""

from dyclu.data.log import Chunk, Log

__all__ = ["Chunk", "Log"]
