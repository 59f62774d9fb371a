"""Models that stand for what users bring: nothing in sconce was tuned for them. See record.py."""
