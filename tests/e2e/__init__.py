"""The whole default stack: `hotline up`, real vLLM on the tiny model, real Envoy, real clients. One stack for all files."""
