"""What Aeron's documents describe step by step, played by members as in production: ``cluster story``.

stage.py       how a story is played, and what it is tested by
sessions.py, elections.py, the_log.py, replay.py, duty_cycle.py  the stories
narration.py   as text, and as a sequence diagram
"""

from cluster.testing.stories import duty_cycle, elections, replay, sessions, the_log
from cluster.testing.stories.stage import STORIES, Stage, Story, StoryLine, StoryUntrue

__all__ = [
    "STORIES",
    "Stage",
    "Story",
    "StoryLine",
    "StoryUntrue",
    "duty_cycle",
    "elections",
    "replay",
    "sessions",
    "the_log",
]
