"""Media: how frames get from one process to another. Knows no session, no log and no election.

The unit on every hop is a batch of raw data frames; what is queued goes out together. Each medium offers
Aeron's idea of a publication and an image: offers with named back pressure, frames in order, positions.

Read first ``sockets.py`` (one connection), then ``links.py`` (between members) and ``server.py`` (where
clients connect). ``dialler.py`` is the client's end over each medium, ``grpc_gateway.py`` the gRPC server,
``aeron_ingress.py`` the same for clients of Aeron's.
``tls.py`` is one TLS session without I/O, which ``tls_connection.py`` puts beneath a connection.
``outsiders.py`` keeps out who has ended a member's lives before.
Nothing here is imported on package import: gRPC alone takes longer to load than a member to start.
"""
