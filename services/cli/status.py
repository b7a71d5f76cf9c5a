"""`hotline status`: what the running stack's processes say of themselves, as a table or as JSON."""

import asyncio
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from services.cli import stack_file
from services.cli.inspection import Report, inspect
from services.cli.stack_file import RunningStack

MIB = 1024 * 1024
ALL_SERVE, NOT_ALL_SERVE, NO_STACK = 0, 1, 3
"""Exit codes; 2 is a usage error's."""

_COLUMNS = (
    *("process", "pid", "address", "metrics", "health", "state", "model", "engine"),
    *("running", "waiting", "KV", "restarts", "engine restarts", "MiB", "up"),
)


def main(folder: Path | None, as_json: bool, timeout_s: float) -> int:
    """Tell about one stack, or all of this user's.

    Args:
        folder: a runtime folder, as `hotline up` names it; None: all that run.
        timeout_s: longest wait for a process's answer.

    Returns:
        0: every process serves; 1: one does not; 3: no stack runs (there, or at all).
    """
    if folder is None:
        stacks = stack_file.find()
    else:
        stack = stack_file.read(folder)
        stacks = [stack] if stack is not None else []
    if not stacks:
        where = f"in {folder}" if folder is not None else "here; `hotline up` starts one"
        print(f"no stack of yours runs {where}", file=sys.stderr)
        return NO_STACK
    told = [(stack, asyncio.run(inspect(stack, timeout_s))) for stack in stacks]
    if as_json:
        print(json.dumps({"stacks": [_document(stack, reports) for stack, reports in told]}))
    else:
        for stack, reports in told:
            _show(stack, reports)
    serving = all(report.health == "SERVING" for _, reports in told for report in reports)
    return ALL_SERVE if serving else NOT_ALL_SERVE


def _document(stack: RunningStack, reports: list[Report]) -> dict[str, object]:
    processes = [report.as_dict() for report in reports]
    return {"folder": str(stack.folder), "pid": stack.pid, "processes": processes}


def _show(stack: RunningStack, reports: list[Report]) -> None:
    table = Table(
        title=f"hotline up, pid {stack.pid}, logs in {stack.folder}", title_justify="left"
    )
    for column in _COLUMNS:
        table.add_column(column)
    for report in reports:
        table.add_row(*_row(stack, report))
    # A pipe has no width of its own: whole lines are worth more than fitting ones.
    Console(width=None if sys.stdout.isatty() else 240).print(table)


def _row(stack: RunningStack, report: Report) -> list[str]:
    ratio = report.kv_usage_ratio
    values = (
        report.name,
        report.pid,
        report.address.replace(f"{stack.folder}/", ""),
        report.metrics_address,
        report.health,
        report.state,
        report.model,
        report.engine,
        report.running,
        report.waiting,
        None if ratio is None else f"{ratio:.0%}",
        report.restart_count,
        report.engine_restart_count,
        None if report.rss_bytes is None else report.rss_bytes // MIB,
        None if report.uptime_s is None else f"{report.uptime_s} s",
    )
    return ["" if value is None else str(value) for value in values]
