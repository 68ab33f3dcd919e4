"""Training. Imports nothing: `horosphere.train.embed`, `horosphere.train.compare`."""
