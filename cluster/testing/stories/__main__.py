"""Write docs/stories.md: ``python -m cluster.testing.stories > docs/stories.md``."""

from cluster.testing.stories.telling import as_page

if __name__ == "__main__":
    print("\n".join(as_page()))
