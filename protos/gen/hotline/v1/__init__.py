"""Generated from protos/hotline; never edited."""
