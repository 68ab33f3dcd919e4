"""Horosphere: deep learning in any geometry."""

__version__ = "0.1.0"
