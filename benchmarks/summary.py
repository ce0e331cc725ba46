#!/usr/bin/env python3
"""Makes the kernel table of docs/performance.md from the JSON of kernels_bench.

usage: benchmarks/summary.py FILE.json [docs/performance.md]

Prints the table. With a second argument, replaces what stands between the two marker lines of that
file. Takes medians when the run had repetitions.
"""

import json
import os
import re
import statistics
import sys
import tempfile

BEGIN = "<!-- kernels: begin -->"
END = "<!-- kernels: end -->"


def rows(report: dict) -> list[dict]:
    """The medians of repeated benchmarks, else the plain runs, in the order of their names."""
    runs = report["benchmarks"]
    medians = [run for run in runs if run.get("aggregate_name") == "median"]
    plain = [run for run in runs if run.get("run_type", "iteration") == "iteration"]
    return sorted(medians or plain, key=lambda run: order(run["run_name"]))


def order(name: str) -> tuple:
    isa, kernel = name.split("/")[:2]
    tokens, threads = (int(argument(name, key) or 0) for key in ("tokens", "threads"))
    return isa, kernel, tokens, threads


def argument(name: str, key: str) -> str:
    found = re.search(rf"{key}:(\d+)", name)
    return found.group(1) if found else ""


def table_row(run: dict) -> str:
    isa, kernel = run["run_name"].split("/")[:2]
    cells = [
        isa,
        kernel,
        argument(run["run_name"], "tokens"),
        argument(run["run_name"], "threads"),
        f"{run['GB/s']:.2f}" if "GB/s" in run else "",
        f"{run['GFLOP/s']:.1f}" if "GFLOP/s" in run else "",
        f"{run['of_limit']:.2f}" if "of_limit" in run else "",
        f"{run['ns/element']:.2f}" if "ns/element" in run else "",
        f"{run['x_c_engine']:.1f}" if "x_c_engine" in run else "",
    ]
    return "| " + " | ".join(cells) + " |"


def spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def make_table(report: dict) -> str:
    lines = [
        "| set | kernel | vectors | threads | GB/s of weights | GFLOP/s | of the limit | ns/element | x C engine |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    runs = rows(report)
    lines += [table_row(run) for run in runs if "rms_error" not in run]
    read, fma = {}, {}
    for run in runs:
        key = (run["run_name"].split("/")[0], argument(run["run_name"], "threads"))
        if "read_limit_GB/s" in run:
            read.setdefault(key, []).append(run["read_limit_GB/s"])
        if "fma_limit_GFLOP/s" in run:
            fma.setdefault(key, []).append(run["fma_limit_GFLOP/s"])
    lines += ["", "Limits, each measured right before the row it judges (median, and the range of the run):",
              "", "| set | threads | read GB/s | multiply-add GFLOP/s |", "| --- | --- | --- | --- |"]
    lines += [f"| {isa} | {threads} | {spread(read.get((isa, threads), []))} "
              f"| {spread(fma.get((isa, threads), []))} |"
              for isa, threads in sorted(set(read) | set(fma))]
    lines += ["", "Error of the products over the rms of the outputs:", "",
              "| product | rms | maximum |", "| --- | --- | --- |"]
    lines += [f"| {run['run_name'].split('/')[1]} | {run['rms_error']:.2g} | {run['max_error']:.2g} |"
              for run in runs if "rms_error" in run]
    return "\n".join(lines)


def replace_between_markers(path: str, begin: str, end: str, section: str) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"{path}: expected one line '{begin}' and one '{end}'")
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
        file.write(f"{head}{begin}\n{section}\n{end}{tail}")
    os.chmod(file.name, os.stat(path).st_mode)
    os.replace(file.name, path)


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        table = make_table(json.load(file))
    print(table)
    if len(sys.argv) == 3:
        replace_between_markers(sys.argv[2], BEGIN, END, table)


if __name__ == "__main__":
    main()
