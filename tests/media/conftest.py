"""Every kernel of the media is compiled before the tests' time-outs begin."""

import cluster.media.aeron  # noqa: F401 - compiles, or loads what is cached
