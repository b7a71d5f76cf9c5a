"""The worker: one resident engine; token ids and features in, token ids out."""
