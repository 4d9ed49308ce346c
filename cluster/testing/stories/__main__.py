"""Write docs/stories.md: ``python -m cluster.testing.stories > docs/stories.md``."""

from cluster.testing.stories.telling import as_page

print("\n".join(as_page()))
