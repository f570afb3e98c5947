"""The documents people and machines exchange: fleet file, inventory, plan, events. Models and schemas, nothing else."""
