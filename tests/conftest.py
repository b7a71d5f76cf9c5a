pytest_plugins = ("edge_process",)
