"""``cluster aeron``: a media driver of Aeron's, for readers of and clients to a real Aeron Cluster."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.verbs import Verbs
from cluster.errors import ClusterError, ConfigurationError, MediaDriverError

VERSION = "1.51.0"
GROUP, ARTIFACT = "io.aeron", "aeron-all"
OPENED = ("java.base/jdk.internal.misc", "java.base/sun.nio.ch")
SETTINGS = {
    "aeron.threading.mode": "SHARED",
    "aeron.term.buffer.sparse.file": "true",
    "aeron.dir.delete.on.shutdown": "true",
}
# Maven's central repository, by the name under which Ivy knows it.
REPOSITORY = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>"""

app = typer.Typer(cls=Verbs, rich_markup_mode=None, add_completion=False, no_args_is_help=True)

EPILOG = f"""\b
Examples:
  cluster aeron driver
  cluster aeron driver --aeron-dir /dev/shm/aeron-spark --jar aeron-all-{VERSION}.jar
  cluster aeron driver -D aeron.threading.mode=DEDICATED -D aeron.term.buffer.length=16m

The driver replaces this command's process, runs until Ctrl-C, and then removes its directory. Applications
that share it must run as the same user. Without --jar, PySpark's resolver fetches Aeron's jar once from Maven
Central into ~/.cache/pyspark-cluster. The C driver, `aeronmd`, works as well.
"""


@app.callback()
def _aeron() -> None:
    """Run Aeron's media driver on this host."""


@app.command(epilog=EPILOG)
def driver(
    aeron_directory: Annotated[
        Path | None,
        typer.Option(
            "--aeron-dir", help="The driver's directory. Default: /dev/shm/aeron-USER.", show_default=False
        ),
    ] = None,
    jar: Annotated[
        Path | None,
        typer.Option(
            envvar="AERON_JAR",
            help="Path of Aeron's jar, aeron-all. Default: it is fetched.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[str, typer.Option(help="Version of the jar to fetch without --jar.")] = VERSION,
    properties: Annotated[
        list[str],
        typer.Option("-D", metavar="NAME=VALUE", help="A system property for the driver. May be repeated."),
    ] = [],  # noqa: B006 - never changed
) -> None:
    """Run the media driver that readers and clients of a real Aeron Cluster need on their host."""
    from cluster.media.aeron import Aeron, default_aeron_dir

    directory = default_aeron_dir() if aeron_directory is None else str(aeron_directory)
    settings = SETTINGS | {"aeron.dir": directory}
    for text in properties:
        name, is_set, value = text.partition("=")
        if not name or not is_set:
            raise ConfigurationError(
                f"-D is {text!r}; expected NAME=VALUE, such as aeron.threading.mode=SHARED"
            )
        settings[name] = value
    java = find_java()
    jar = fetch_jar(java, version, Path.home() / ".cache" / "pyspark-cluster") if jar is None else jar
    if not jar.is_file():
        raise ConfigurationError(f"--jar is {jar}: no such file")
    try:
        with Aeron.connect(directory, 0):
            raise ClusterError(
                f"a media driver runs with directory {directory} already, or was killed less than 10 s ago"
            )
    except MediaDriverError:
        pass  # as is expected
    print(f"media driver of {jar.name} in {directory}; Ctrl-C ends it", flush=True)
    os.execv(java, driver_command(java, jar, settings))


def find_java() -> str:
    """The one of JAVA_HOME, else on the PATH. Raises ConfigurationError where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if found is None:
        raise ConfigurationError("Java 17 or newer is needed: set JAVA_HOME, or put java on the PATH")
    return found


def driver_command(java: str, jar: Path, settings: dict[str, str]) -> list[str]:
    """What runs the driver with these settings of Aeron's."""
    opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    named = [f"-D{name}={value}" for name, value in settings.items()]
    return [java, *opened, "-Xmx256m", *named, "-cp", str(jar), "io.aeron.driver.MediaDriver"]


def fetch_jar(java: str, version: str, folder: Path) -> Path:
    """Aeron's jar in ``folder``, by the resolver that comes with PySpark. Raises ConfigurationError."""
    jar = folder / f"{ARTIFACT}-{version}.jar"
    if jar.exists():
        return jar
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ConfigurationError(
            f"--jar is not given, and PySpark, whose resolver fetches it, is not installed; expected {GROUP}:"
            f"{ARTIFACT}:{version} of Maven's repository, or pip install 'pyspark-cluster[spark]'"
        )
    resolver = next(Path(pyspark.origin).parent.glob("jars/ivy-*.jar"))
    print(f"fetches {jar.name} into {folder}", file=sys.stderr)
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as settings:
        settings.write(REPOSITORY)
        settings.flush()
        what = ["-dependency", GROUP, ARTIFACT, version]
        kind = ["-confs", "default", "-types", "jar", "-notransitive"]
        where = ["-retrieve", f"{folder}/[artifact]-[revision].[ext]", "-warn"]
        command = [java, "-jar", str(resolver), "-settings", settings.name, *what, *kind, *where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not jar.exists():
        said = (line.strip(": \t") for line in (done.stdout + done.stderr).splitlines())  # in rules of colons
        *_, last = ["", *filter(None, said)]
        raise ConfigurationError(f"{GROUP}:{ARTIFACT}:{version} cannot be fetched: {last}")
    return jar
