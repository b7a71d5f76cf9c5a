"""The gateway: admits, places and relays generations; knows no tokenizer, no template and no engine."""
