"""The loop: what a watcher sees, decides and applies, again and again."""
