"""Training of any task: the engine, checkpoints, several processes. Imports nothing by itself."""
