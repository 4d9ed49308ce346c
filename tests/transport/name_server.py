"""A name server for tests, which answers when it is told to."""

from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.names import Names


class NameServer:
    """Answers when it is told to."""

    def __init__(self):
        self.now_ns = 0
        self.told = []
        self.questions = []
        self.names = Names(self.ask, clock_ns=lambda: self.now_ns, on_event=self.told.append)

    def ask(self, host, answer):
        self.questions.append((host, answer))

    def answer(self, *addresses, why=""):
        self.questions[-1][1](addresses, why)


def of(host, port=9):
    return Endpoint(Medium.TCP, host, port)


def hosts(server, endpoint):
    return [place.host for place in server.names.places(endpoint)]
