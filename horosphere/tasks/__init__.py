"""Kinds of learning, one file each. Imports nothing: the catalogue names them."""
