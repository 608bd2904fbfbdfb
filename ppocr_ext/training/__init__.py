"""Training and evaluation inside the host's loop."""
