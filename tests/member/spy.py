"""The order in which a member's turn calls what it is made of."""


class Spy:
    """Notes the order in which methods are called."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch
        self.calls = []

    def on(self, target, method, name=None):
        original = getattr(type(target), method)

        def called(called_on, *arguments, **keywords):
            if called_on is target:
                self.calls.append(name or method)
            return original(called_on, *arguments, **keywords)

        self.monkeypatch.setattr(type(target), method, called)

    def turn(self, member, after_ns=0):
        self.calls.clear()
        member.take_turn(after_ns)
        return list(self.calls)
