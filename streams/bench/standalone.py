"""A standalone cluster of Spark on this machine, for tests and benchmarks.

Its hosts are processes, each with a directory and an address of its own. What they are not to
see of each other they do not, where root may give them mount namespaces.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from streams.errors import Determinate
from streams.java import java_for_spark, package_directory

ROOT = Path(__file__).parents[2]
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


@dataclass
class Host:
    """A worker, with a directory of its own for everything that its executors write."""

    directory: Path
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """End it and its executors, as when the machine loses its power."""
        if self.process.poll() is None:
            _kill(self.process)


@dataclass
class Standalone:
    """A master and its workers."""

    url: str
    java: Path
    directory: Path
    hidden: Sequence[Path]
    """What no worker may see, as the directory of a driver."""
    cores: int = 1
    """Those of each worker."""
    hosts: list[Host] = field(default_factory=list)

    def add_host(self) -> Host:
        """Start a worker, which sees no other worker's directory."""
        directory = self.directory / f"host{len(self.hosts)}"
        directory.mkdir(parents=True)
        environment = {"SPARK_LOCAL_DIRS": str(directory / "local")}
        # of one address two executors read each other's shuffle files from the disk
        address = f"127.0.0.{len(self.hosts) + 2}"
        command = [
            *("org.apache.spark.deploy.worker.Worker", self.url, "--host", address),
            *("--cores", str(self.cores), "--memory", "1g", "--webui-port", "0"),
            *("--work-dir", str(directory / "work")),
        ]
        others = [host.directory for host in self.hosts]
        process = _started(
            self.java, command, directory / "log", environment, [*self.hidden, *others]
        )
        self.hosts.append(Host(directory, process))
        return self.hosts[-1]

    def stop(self) -> None:
        """End all workers."""
        for host in self.hosts:
            host.kill()


@contextmanager
def standalone(
    directory: Path, hosts: int, hidden: Sequence[Path] = (), *, cores: int = 1
) -> Iterator[Standalone]:
    """Run a cluster, in processes that end with the block.

    No worker sees the directories in `hidden`, and none that of another one.

    Errors: Determinate if Spark's master does not start.
    """
    with ExitStack() as stack:
        java = stack.enter_context(java_for_spark()) or Path("java")
        directory.mkdir(exist_ok=True)
        log = directory / "master.log"
        command = [
            *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"),
            *("--webui-port", "0"),
        ]
        master = _started(java, command, log, {}, ())
        stack.callback(_kill, master)
        cluster = Standalone(_url(master, log), java, directory, hidden, cores)
        stack.callback(cluster.stop)
        for _ in range(hosts):
            cluster.add_host()
        yield cluster


def _started(
    java: Path,
    command: Sequence[str],
    log: Path,
    environment: dict[str, str],
    hidden: Sequence[Path],
) -> "subprocess.Popen[bytes]":
    spark = package_directory("pyspark")
    jvm = [str(java), "-Xmx256m", "-cp", f"{spark}/jars/*", *command]
    if hidden and os.geteuid() == 0:  # without root each sees the directories of the others
        script = f"count={len(hidden)}; {_HIDE_SOME}"
        jvm = ["unshare", "--mount", "sh", "-c", script, "sh", *map(str, hidden), *jvm]
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603  our own program
            jvm,
            cwd=ROOT,
            env={
                **os.environ,
                "SPARK_HOME": str(spark),
                "SPARK_SCALA_VERSION": "2.13",
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                **environment,
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


_HIDE_SOME = (
    'while [ "$count" -gt 0 ]; do mount -t tmpfs none "$1" || exit 1;'
    ' shift; count=$((count - 1)); done; exec "$@"'
)


def _url(master: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and master.poll() is None:
        if master_url := _MASTER.search(log.read_text()):
            return master_url[1]
        time.sleep(0.1)
    raise Determinate(f"Spark's master did not start: {log.read_text()[-2000:]}")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all of its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
