"""The Spark session that the jobs, the demo and the tests share.

``spark-submit`` has its own session settings and jars; a plain ``python -m jobs.NAME`` gets them here,
from the same files of ``conf/``. Delta's jars come by coordinate through Spark's own resolver the first time,
and straight from its cache afterwards, which spares each start a second and a page of output.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_COORDINATE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"

# The part of that coordinate's dependencies that Spark does not have itself.
DELTA_JARS: Final = (
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "io.delta_delta-storage-4.4.0.jar",
    "io.delta_delta-kernel-api-4.4.0.jar",
    "io.delta_delta-kernel-defaults-4.4.0.jar",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
)

# What a starting JVM says however well it is configured, what Spark's worker daemon says when the JVM hangs
# up on a worker that it has no more use for, and a query when Spark is ended around it.
_INCUBATOR: Final = "WARNING: Using incubator modules: "
_TRACEBACK: Final = "Traceback (most recent call last):"
_DAEMON_FRAME: Final = re.compile(r'^  File ".*/pyspark/daemon\.py", line \d+, in ')
_SOURCE_LINE: Final = "    "  # beneath a frame, where pyspark lies unpacked
_HUNG_UP: Final = "BrokenPipeError: "
_QUERY_DIES: Final = 'Exception in thread "stream execution thread for '
_INSTALLED: Final = Path("/usr/lib/jvm")  # where Linux distributions put it
_JAVA_FRAME: Final = re.compile(r"\s+at |Caused by: |\s+\.\.\. \d+ more")
_SPARK_ENDED: Final = "org.apache.spark.rpc.RpcEnvStoppedException"


def conf_dir() -> Path:
    """The folder of Spark's settings: the checkout's ``conf/``, or the wheel's copy of it."""
    here = Path(__file__).resolve().parent
    for folder in (here.parent / "conf", here / "conf"):
        if (folder / "spark-defaults.conf").is_file():
            return folder
    raise FileNotFoundError(f"no spark-defaults.conf beside {here}: this installation lacks its conf folder")


def defaults(text: str) -> dict[str, str]:
    """The settings of a ``spark-defaults.conf``: a key, white space, a value; ``#`` starts a comment line."""
    settings = {}
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            key, _, value = line.partition(" ")
            settings[key] = value.strip()
    return settings


def resolved_jars() -> list[Path]:
    """Delta's jars in the resolver's cache, or nothing when one of them is not there yet."""
    import pyspark

    ivy_version = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"), Path("ivy-2.5.2.jar"))
    homes = [
        Path.home() / f".ivy{ivy_version.stem.removeprefix('ivy-')}",
        *sorted(Path.home().glob(".ivy2*")),
    ]
    for home in homes:
        jars = [home / "jars" / name for name in DELTA_JARS]
        if all(jar.is_file() for jar in jars):
            return jars
    return []


def _settings(app_name: str, master: str, extra: dict[str, str]) -> dict[str, str]:
    conf = conf_dir()
    settings = defaults((conf / "spark-defaults.conf").read_text())
    jars = resolved_jars()
    if jars:
        settings.pop("spark.jars.packages", None)
        settings.pop("spark.jars.ivySettings", None)
        settings["spark.jars"] = ",".join(map(str, jars))
    else:
        settings["spark.jars.ivySettings"] = str(conf / "ivysettings.xml")
    log4j = (conf / "log4j2.properties").as_uri()
    settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log4j}"
    settings["spark.executor.extraJavaOptions"] = settings["spark.driver.extraJavaOptions"]
    settings["spark.master"] = master
    settings["spark.app.name"] = app_name
    return settings | extra


def spark_session(
    app_name: str,
    master: str = "local[*]",
    extra: dict[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The running session (``spark-submit``), or one of ``conf/``; its noise goes to ``log``."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if submitted():
        builder = builder.appName(app_name)
        for key, value in (extra or {}).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    if found := java_home():
        os.environ["JAVA_HOME"] = found
    for key, value in _settings(app_name, master, extra or {}).items():
        builder = builder.config(key, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    with _QuietStart(log), _nothing_left():
        spark = builder.getOrCreate()
    # PySpark's server of accumulators prints a traceback when the JVM is killed and hangs up.
    accumulators = spark.sparkContext._accumulatorServer
    accumulators.handle_error = _report_unless_hung_up  # type: ignore[method-assign,assignment]
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler of Ctrl-C talks to the JVM from within whatever call is being made to it.
        signal.signal(signal.SIGINT, on_interrupt)
    return spark


def _report_unless_hung_up(*_: object) -> None:
    if not isinstance(sys.exception(), EOFError):
        traceback.print_exc()


@contextmanager
def _nothing_left() -> Iterator[None]:
    """Kill what was started inside when that fails: PySpark forgets a JVM that has not reported."""
    before = _children()
    try:
        yield
    except BaseException:
        for pid in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def _children() -> set[int]:
    """The processes that this one has started."""
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for pids in lists for pid in pids.split()}


@contextmanager
def ending(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop ``spark``; when interrupted, end its JVM, whose calls may be cut in two."""
    try:
        yield spark
    except KeyboardInterrupt:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        gateway.proc.kill()
        gateway.proc.wait()
        raise
    except BaseException:
        spark.stop()
        raise
    else:
        spark.stop()


def java_home() -> str | None:
    """A folder with Java 17 or newer, unless it is found anyway. Raises ConfigurationError."""
    if os.environ.get("JAVA_HOME") and _is_new_enough(Path(os.environ["JAVA_HOME"], "bin", "java")):
        return None
    on_path = shutil.which("java")
    if not os.environ.get("JAVA_HOME") and on_path and _is_new_enough(Path(on_path)):
        return None
    for java in sorted(_INSTALLED.glob("*/bin/java")):
        if _is_new_enough(java):
            return str(java.parent.parent)
    raise ConfigurationError(
        f"Spark needs Java 17 or newer: JAVA_HOME is {os.environ.get('JAVA_HOME', '')!r}, "
        f"the java of the search path is {on_path or 'none'}, and none is in {_INSTALLED}"
    )


def _is_new_enough(java: Path) -> bool:
    try:
        version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return False
    major = re.search(r'version "(\d+)', version)
    return major is not None and int(major[1]) >= 17


def submitted() -> bool:
    """True under ``spark-submit``, which starts the JVM first and gives the program its address."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _QuietStart:
    """Drops the start-up noise of the JVM started inside; all else it says is passed on, or to ``log``."""

    def __init__(self, log: Path | None) -> None:
        self._log = log

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._screen = os.dup(2)
        if self._log is None:
            reading, writing = os.pipe()
            screen = os.dup(self._screen)
            threading.Thread(target=self._pass_on, args=(reading, screen), daemon=True).start()
        else:
            writing = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(writing, 2)
        os.close(writing)

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._screen, 2)
        os.close(self._screen)

    @staticmethod
    def _pass_on(reading: int, screen: int) -> None:
        wanted = WantedLines()
        with os.fdopen(reading, errors="replace") as lines, os.fdopen(screen, "w") as out:
            for line in lines:
                out.writelines(wanted.of(line))
                out.flush()
            out.writelines(wanted.rest())


class WantedLines:
    """Leaves Spark's noise out of its standard error, line by line."""

    def __init__(self) -> None:
        self._withheld: list[str] = []  # beginnings of tracebacks that may turn out to be noise
        self._is_noise = False
        self._dying: list[str] = []  # a query's Java trace, until it has ended

    def of(self, line: str) -> list[str]:
        """What of the lines so far is to be shown now."""
        if line.startswith(_QUERY_DIES) or (self._dying and _JAVA_FRAME.match(line)):
            self._dying.append(line)
            return []
        if self._dying:
            return [*self.rest(), *self.of(line)]
        if line.startswith(_INCUBATOR):
            return []
        if line.startswith(_TRACEBACK):
            self._withheld.append(line)
            return []
        if _DAEMON_FRAME.match(line) or (self._is_noise and line.startswith((_SOURCE_LINE, _HUNG_UP))):
            self._withheld.clear()
            self._is_noise = True
            return []
        shown = [*self._withheld, line]
        self._withheld.clear()
        self._is_noise = False
        return shown

    def rest(self) -> list[str]:
        """What of a Java trace that was not shown is to be shown, now that it has ended."""
        trace = [] if any(_SPARK_ENDED in line for line in self._dying) else self._dying
        self._dying = []
        return trace


def main() -> None:
    """Start a session once, so that the resolver fetches what later sessions find in its cache."""
    if resolved_jars():
        return
    spark_session("setup", master="local[1]").stop()
    if not resolved_jars():
        sys.exit(f"Spark's resolver did not deliver the jars of {DELTA_COORDINATE}")


if __name__ == "__main__":
    main()
