"""The superposition laboratory: a toy model of sparse features in few dimensions, and what it says of language models.

Modules are imported by name: `toy` (the model), `frequencies`, `sweep` (many runs), `diagnostics`, `theory`, `fits`,
`heads`, `published`.
"""
