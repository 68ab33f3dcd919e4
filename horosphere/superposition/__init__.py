"""The superposition laboratory: a toy model of sparse features in few dimensions, sweeps over it, and what both say about language models.

Imports nothing: `toy` (the model), `frequencies`, `sweep` (many runs), `diagnostics`, `theory`, `fits`, `heads`, `published`.
"""
