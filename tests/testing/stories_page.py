"""All stories as a page: ``python -m tests.testing.stories_page > docs/stories.md``."""

from collections.abc import Iterator

from cluster.testing.stories import STORIES, Story, StoryLine
from cluster.testing.stories.narration import as_diagram


def as_page() -> Iterator[str]:
    """All stories, in the order of the list."""
    yield HEAD
    for story in STORIES.values():
        yield ""
        yield from as_section(story, story.play())


def as_section(story: Story, lines: list[StoryLine]) -> Iterator[str]:
    """Its part of the page: diagram and sentences."""
    yield f"## {story.title}\n\n`cluster story {story.name}`\n\n```mermaid"
    yield from as_diagram(lines)
    yield "```\n"
    sentences = (line.sentence for line in lines if line.sentence)
    yield from (f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))


HEAD = """\
# Stories

What Aeron's documents describe step by step, played by simulated members that run the code of production.
`cluster story` lists the stories. `cluster story NAME` prints one with all messages between clients, members
and services; `--mermaid` prints its diagram, `--json` the same for programs. `--out FILE` writes a page that
plays it, step by step, in any browser, and `--shiviz FILE` a log for ShiViz. Each story is a script in
`cluster/testing/stories/`. Its steps are tested: each has to be seen after the one before it. This page is
made by `python -m tests.testing.stories_page`.

In a test of your own, `SimulatedCluster(..., watched=True).happenings` has the same lines of your service.
"Log:" is an entry on its way from the leader to a follower. An arrow with a cross is a message that is stuck
in a path that is cut."""


if __name__ == "__main__":
    print("\n".join(as_page()))
