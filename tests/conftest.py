"""What all tests share."""

import logging

import structlog

pytest_plugins = ("edge_process",)

# Services that run inside the tests must not write between what the tests capture; pytest shows what failed.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
