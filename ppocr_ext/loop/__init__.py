"""PaddleOCR's training loop: proxies, events, hooks."""
