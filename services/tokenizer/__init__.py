"""The tokenizer: conversations to token ids and features, token ids to text; all on the CPU."""
