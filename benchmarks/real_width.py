#!/usr/bin/env python3
"""The ladder of budgets at the released width; benchmarks/real-width.sh builds and calls it."""

import argparse
import contextlib
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

from summary import replace_between_markers

BIN = pathlib.Path("build/release/bin")
BEGIN = "<!-- real width: begin -->"
END = "<!-- real width: end -->"
USABLE = 0.95  # of what is available, the engine's own bound
FIRST_STEADY = 3  # the first token reads the prompt, the second still fills the cache
GB = 1e9


class Failure(Exception):
    """Ends the script with a message."""


class Group:
    """A memory cgroup with a limit: version 1 or 2 made by hand, else by systemd-run.

    With `disk`, a pair of device and bytes a second, reads of the device are slowed down to that.
    """

    V1 = pathlib.Path("/sys/fs/cgroup/memory")
    V2 = pathlib.Path("/sys/fs/cgroup")

    def __init__(self, disk: tuple[str, int] | None) -> None:
        self.path: pathlib.Path | None = None
        self.slow: pathlib.Path | None = None  # version 1 has a group of its own for the disk
        self.disk = disk
        self.kind = ""
        self.make()
        if disk is not None and self.path is not None:
            try:
                self.slow_down(*disk)
            except OSError as error:
                self.close()
                raise Failure(f"reads of the disk cannot be slowed down here: {error}") from error

    def slow_down(self, device: str, rate: int) -> None:
        if self.kind == "v2":
            (self.path / "io.max").write_text(f"{device} rbps={rate}")
            return
        slow = pathlib.Path("/sys/fs/cgroup/blkio") / self.path.name
        slow.mkdir()
        self.slow = slow
        (slow / "blkio.throttle.read_bps_device").write_text(f"{device} {rate}")

    def make(self) -> None:
        for kind, root, limit in (
            ("v1", self.V1, "memory.limit_in_bytes"),
            ("v2", self.V2, "memory.max"),
        ):
            path = root / f"k3-real-width-{os.getpid()}"
            with contextlib.suppress(OSError):
                path.mkdir()
                if (path / limit).exists():
                    self.path, self.kind, self.limit = path, kind, limit
                    return
                path.rmdir()
        probe = ["systemd-run", "--scope", "--quiet", "-p", "MemoryMax=1G", "true"]
        with contextlib.suppress(OSError):
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                self.kind = "systemd-run"
                return
        raise Failure(
            "no memory cgroup can be made here: neither under /sys/fs/cgroup/memory (v1) nor "
            "/sys/fs/cgroup (v2) by this user, nor by systemd-run"
        )

    def run(self, command: list[str], limit_bytes: int) -> subprocess.CompletedProcess:
        if self.path is None:
            prefix = ["systemd-run", "--scope", "--quiet", "-p", f"MemoryMax={limit_bytes}"]
            prefix += ["-p", "MemorySwapMax=0"]
            if self.disk is not None:
                device, rate = self.disk
                prefix += ["-p", f"IOReadBandwidthMax=/dev/block/{device} {rate}"]
            return subprocess.run(prefix + command, capture_output=True, text=True, check=False)
        (self.path / self.limit).write_text(str(limit_bytes))

        def enter() -> None:
            for path in filter(None, (self.path, self.slow)):
                (path / "cgroup.procs").write_text(str(os.getpid()))

        return subprocess.run(
            command, capture_output=True, text=True, check=False, preexec_fn=enter
        )

    def close(self) -> None:
        for path in filter(None, (self.path, self.slow)):
            path.rmdir()


class Run:
    """What one run of k3 printed."""

    def __init__(self, out: str, logits: pathlib.Path, budget: float, limit: int) -> None:
        self.budget = budget
        self.limit = limit
        self.plan = number(r"^  TOTAL +([0-9.]+) GB", out)
        self.peak = number(r"PEAK RSS for the whole run: ([0-9.]+) GB", out)
        self.state = number(r"^  sequence state +([0-9.]+) GB", out)
        self.latents = number(r"^  latents \(\d+ positions\) +([0-9.]+) GB", out)
        self.hits = number(r"experts: ([0-9.]+)% of", out, 0.0)
        steps = re.findall(r"^ +(\d+) +\d+ +([0-9.]+) +[0-9.]+% +([0-9.]+) ", out, re.M)
        steady = [(float(s), float(b)) for n, s, b in steps if int(n) >= FIRST_STEADY]
        self.seconds = statistics.median(s for s, _ in steady)
        self.read = statistics.median(b for _, b in steady)
        self.tokens = re.search(r"^generated ids: (.*)$", out, re.M).group(1)
        self.digest = hashlib.sha256(logits.read_bytes()).hexdigest()


def number(pattern: str, text: str, otherwise: float | None = None) -> float:
    found = re.search(pattern, text, re.M)
    if found is None:
        if otherwise is None:
            raise Failure(f"k3 printed nothing that matches {pattern!r}:\n{text}")
        return otherwise
    return float(found.group(1))


class Ladder:
    def __init__(self, arguments: argparse.Namespace, group: Group) -> None:
        self.directory = pathlib.Path(arguments.directory)
        self.gen = arguments.gen
        self.rungs = arguments.rungs
        self.repeat = arguments.repeat
        self.slice_options = arguments.slice.split()
        self.group = group
        self.model = self.directory / "slice"
        self.trunk = self.directory / "trunk"
        self.logits = self.directory / "logits.bin"

    def prepare(self) -> None:
        if not (self.model / "config.json").exists():
            if not self.slice_options:
                need = 12.6
                free = shutil.disk_usage(self.directory).free / GB
                if free < need + 9.2:
                    raise Failure(
                        f"{self.directory}: {need + 9.2:.1f} GB of disk are needed, "
                        f"{free:.1f} GB are free"
                    )
            say("making the slice")
            check([BIN / "k3-make-slice", *self.slice_options, self.model])
        if not (self.trunk / "trunk.json").exists():
            say("packing its trunk")
            check([BIN / "k3-pack", self.model, self.trunk])

    def engine(self, budget: float, limit: int, packed: bool = False) -> Run:
        command = [BIN / "k3", self.model, "--ids", "1,2,3,4", "--gen", self.gen]
        command += ["--no-progress", "--out", self.directory / "run.json"]
        command += ["--dump-logits", self.logits]
        command += ["--ram", f"{budget:.3f}"] if budget else []
        command += ["--trunk", self.trunk] if packed else []
        done = self.group.run([str(part) for part in command], limit)
        if done.returncode != 0:
            raise Failure(
                f"k3 --ram {budget:.3f} under a limit of {limit} bytes ended with status "
                f"{done.returncode}: {done.stderr.strip()}"
            )
        return Run(done.stdout, self.logits, budget, limit)

    def floor(self) -> float:
        """GB below which --ram is refused, as the refusal names them."""
        command = [BIN / "k3", self.model, "--ids", "1,2,3,4", "--gen", self.gen, "--ram", "0.01"]
        command += ["--no-progress", "--out", self.directory / "run.json"]
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False
        )
        return number(r"expected at least ([0-9.]+) GB", done.stderr) + 0.001

    def bandwidth(self) -> float:
        """GB a second that the device gives the engine's mix of reads."""
        command = [BIN / "k3-devbw", "--json", "--direct", "--seconds", "0.5", self.model]
        done = self.group.run([str(part) for part in command], available())
        if done.returncode != 0:
            raise Failure(f"k3-devbw ended with status {done.returncode}: {done.stderr.strip()}")
        best = json.loads(done.stdout)["devices"][0]["best"]
        return best["mix_bytes_per_second"] / GB

    def climb(self) -> tuple[list[tuple[Run, float]], Run]:
        floor = self.floor()
        resident = self.engine(0.0, available())
        top = resident.plan
        rungs = []
        for i in range(self.rungs):
            budget = math.ceil((floor + (top - floor) * i / self.rungs) * 1000) / 1000
            before = self.bandwidth()
            run = self.engine(budget, limit_of(budget))
            rungs.append((run, (before + self.bandwidth()) / 2))
            say(f"{budget:.3f} GB: {run.seconds:.3f} s/token, {run.read:.3f} GB/token")
        return rungs, self.engine(0.0, limit_of(top + 0.002))

    def packed_against_shards(self, budget: float) -> float:
        """Seconds a token from the shards over those from the packed trunk."""
        pairs = []
        for _ in range(self.repeat):
            shards = self.engine(budget, limit_of(budget))
            packed = self.engine(budget, limit_of(budget), packed=True)
            if (packed.tokens, packed.digest) != (shards.tokens, shards.digest):
                raise Failure("the packed trunk gives other tokens or logits than the shards")
            pairs.append(shards.seconds / packed.seconds)
        return statistics.median(pairs)

    def resident_against_kernels(self) -> tuple[float, float, float]:
        """Medians of seconds a token resident, of the kernels alone, and of their ratio."""
        found = []
        for _ in range(self.repeat):
            kernels = json.loads(check([BIN / "k3-token-kernels", self.model / "config.json"]))
            run = self.engine(0.0, available())
            found.append((run.seconds, kernels["seconds"], run.seconds / kernels["seconds"]))
        return tuple(statistics.median(column) for column in zip(*found))


def device_of(directory: pathlib.Path) -> str:
    """MAJOR:MINOR of the whole disk that holds a directory, which is what can be slowed down."""
    number_of = os.stat(directory).st_dev
    device = f"{os.major(number_of)}:{os.minor(number_of)}"
    block = pathlib.Path("/sys/dev/block") / device
    if not block.exists():
        raise Failure(f"{directory}: is on no block device ({device}), which --disk-gb-s wants")
    if (block / "partition").exists():
        device = (block.resolve().parent / "dev").read_text().strip()
    return device


def limit_of(budget: float) -> int:
    """The least limit whose usable share is the budget, in whole pages."""
    return math.ceil(budget * GB / USABLE / 4096) * 4096


def available() -> int:
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable: +(\d+) kB", text).group(1)) * 1024


def check(command: list) -> str:
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise Failure(f"{command[0]} ended with status {done.returncode}")
    return done.stdout


def say(text: str) -> None:
    print(f"real-width: {text}", file=sys.stderr, flush=True)


def verdict(value: float, low: float, high: float) -> str:
    return "yes" if low <= value <= high else "**no**"


def report(rungs: list, resident: Run, packed: float, kernels: tuple, group: Group) -> str:
    lines = [
        "| budget GB | cgroup limit GB | plan GB | peak GB | peak / plan | s/token | GB read/token "
        "| expert hits | disk GB/s | x disk |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    slowest = 0.0
    for run, bandwidth in rungs:
        ratio = run.seconds / (run.read / bandwidth) if run.read else 0.0
        slowest = max(slowest, ratio)
        lines.append(
            f"| {run.budget:.3f} | {run.limit / GB:.3f} | {run.plan:.3f} | {run.peak:.3f} "
            f"| {run.peak / run.plan:.3f} | {run.seconds:.3f} | {run.read:.3f} | {run.hits:.1f}% "
            f"| {bandwidth:.2f} | {ratio:.2f} |"
        )
    lines.append(
        f"| all | {resident.limit / GB:.3f} | {resident.plan:.3f} | {resident.peak:.3f} "
        f"| {resident.peak / resident.plan:.3f} | {resident.seconds:.3f} | {resident.read:.3f} "
        f"| {resident.hits:.1f}% | | |"
    )
    floor = rungs[0][0]
    shares = [run.peak / run.plan for run, _ in rungs] + [resident.peak / resident.plan]
    bound = 1.5 + floor.state + floor.latents
    seconds, alone, ratio = kernels
    lines += [
        "",
        "| figure | reach | found | reached |",
        "| --- | --- | --- | --- |",
        f"| seconds a token over bytes / bandwidth, slowest budget | at most 1.10 | {slowest:.2f} "
        f"| {verdict(slowest, 0, 1.10)} |",
        f"| peak at the floor, GB | at most {bound:.3f} | {floor.peak:.3f} "
        f"| {verdict(floor.peak, 0, bound)} |",
        f"| measured peak / plan | 0.95 to 1.00 | {min(shares):.3f} to {max(shares):.3f} "
        f"| {verdict(min(shares), 0.95, 1.0) if max(shares) <= 1.0 else '**no**'} |",
        f"| resident: seconds a token over those of the kernels alone ({seconds:.3f} / {alone:.3f}) "
        f"| at most 1.10 | {ratio:.2f} | {verdict(ratio, 0, 1.10)} |",
        f"| seconds a token, shards over packed trunk | at most 1.05 | {packed:.2f} "
        f"| {verdict(packed, 0, 1.05)} |",
        "",
        f"Tokens and logits (SHA-256) are the same in every row. Cgroup: {group.kind}."
        + (f" Reads slowed down to {group.disk[1] / GB:g} GB/s." if group.disk else ""),
    ]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/real-width.sh", description=__doc__)
    parser.add_argument("directory", nargs="?", default="build/real-width")
    parser.add_argument("--gen", type=int, default=8, help="tokens of a run, at least 7 (8)")
    parser.add_argument("--rungs", type=int, default=5, help="budgets below all in memory (5)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each comparison (5)")
    parser.add_argument("--slice", default="", help="options of k3-make-slice, for a trial")
    parser.add_argument(
        "--disk-gb-s", type=float, help="slow reads of the disk down to so many GB a second"
    )
    parser.add_argument("--docs", help="file whose section between the marker lines is replaced")
    arguments = parser.parse_args()
    if arguments.gen < FIRST_STEADY + 4 or arguments.rungs < 1 or arguments.repeat < 1:
        parser.error("--gen: at least 7, so that five tokens are steady; the others at least 1")
    return arguments


def main() -> int:
    arguments = parse()
    group = None
    try:
        directory = pathlib.Path(arguments.directory)
        directory.mkdir(parents=True, exist_ok=True)
        rate = arguments.disk_gb_s
        group = Group((device_of(directory), round(rate * GB)) if rate else None)
        ladder = Ladder(arguments, group)
        ladder.prepare()
        rungs, resident = ladder.climb()
        for run, _ in rungs:
            if (run.tokens, run.digest) != (resident.tokens, resident.digest):
                raise Failure(f"--ram {run.budget:.3f} gives other tokens or logits than all in memory")
        packed = ladder.packed_against_shards(rungs[0][0].budget)
        kernels = ladder.resident_against_kernels()
        section = report(rungs, resident, packed, kernels, group)
        print(section)
        if arguments.docs:
            replace_between_markers(arguments.docs, BEGIN, END, section)
        return 0
    except (Failure, OSError) as failure:
        print(f"real-width: {failure}", file=sys.stderr)
        return 1
    finally:
        if group is not None:
            group.close()


if __name__ == "__main__":
    sys.exit(main())
