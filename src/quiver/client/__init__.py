"""ASKS: the public API, one behaviour behind a sync and an async face."""
