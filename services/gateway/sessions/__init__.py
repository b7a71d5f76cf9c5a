"""Conversations that the gateway keeps: records, their stores, their turns."""
