"""What the room that is left on nodes is worth to everything else that is wanted."""
