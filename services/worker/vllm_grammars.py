"""Compiling a client's grammar gives way to the steps of everybody else's generations.

xgrammar compiles in up to eight threads, outside Python's lock: a schema of 50 KB takes all cores of a small machine for
seconds, and the engine's loop waits for its turn among them. Linux keeps niceness by thread, and threads inherit it.

Imported only beside vLLM, in the engine's process.
"""

import os
import threading
from typing import Any

NICENESS = 19
"""The least claim to a core that there is."""


def compile_grammars_last() -> None:
    """Let vLLM's compiling thread, and those that it starts, run when nobody else wants the cores."""
    from vllm.v1.structured_output import StructuredOutputManager

    create = StructuredOutputManager._create_grammar

    def create_last(manager: Any, request: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        return create(manager, request)

    StructuredOutputManager._create_grammar = create_last
