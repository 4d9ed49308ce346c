"""Canvass, nomination and ballot."""

from cluster.testing.stories.stage import Stage, service_of, story

PAGE = "Canvass"

WINS = "election CANDIDATE_BALLOT -> LEADER_LOG_REPLICATION"
UNANIMOUS = "election CANVASS -> NOMINATE: unanimous candidate"
QUORUM = "election CANVASS -> NOMINATE: quorum candidate"


@story("canvass-equal-logs", "The whole cluster starts, with equal logs", page=PAGE)
def canvass_equal_logs(stage: Stage) -> None:
    cluster = stage.cluster()
    leader = cluster.await_leader()
    one = (leader + 1) % 3
    cluster.run(0.5)
    stage.step("Every member enters CANVASS.", leader, "election INIT -> CANVASS")
    stage.step("Members say where their logs end: here nobody has any.", one, "CanvassPosition", to=leader)
    stage.step(
        "Who has heard from all, and has the best log or one as good, is a unanimous candidate.",
        leader,
        UNANIMOUS,
    )
    stage.step("It asks the others for their votes.", leader, "RequestVote", to=one)
    stage.step("Several may be candidates when logs are equal.", one, UNANIMOUS)
    stage.step("Who is asked votes, and stands no more.", one, "Vote .*vote=True", to=leader)
    stage.step("All have voted for it.", leader, WINS)
    stage.step("The others hear of the new term.", leader, "NewLeadershipTerm ", to=one)
    stage.step("The term's event is the first entry of its log.", leader, "Log: NewLeadershipTermEvent")


@story("canvass-unequal-logs", "The whole cluster starts, and one member has less log", page=PAGE)
def canvass_unequal_logs(stage: Stage) -> None:
    cluster, alice, old, _ = stage.led_cluster()
    short, full = [member for member in range(3) if member != old]
    cluster.kill(short)
    alice.offer(b"more")
    cluster.settle()
    for member in (old, full):
        cluster.kill(member)
    alice.pause()
    stage.begin()
    for member in range(3):
        cluster.start(member)
    leader = cluster.await_leader()
    other = next(member for member in (old, full) if member != leader)
    cluster.run(1)
    stage.step("All start at once. One has less log than the others.", short, "starts")
    stage.step("It says where its log ends.", short, "CanvassPosition", to=leader)
    stage.step(
        "Only a member with the highest position of the highest term may be a candidate.", leader, UNANIMOUS
    )
    stage.step("It asks for votes.", leader, "RequestVote", to=short)
    stage.step(
        "The one with less log has not become a candidate. It votes.",
        short,
        "election CANVASS -> FOLLOWER_BALLOT: voted",
    )
    stage.step("So does one whose log is as long.", other, "Vote .*vote=True", to=leader)
    stage.step("The candidate leads.", leader, WINS)
    stage.step(
        "The one with less log hears of the term, and begins to fetch what it misses.",
        short,
        "election .* -> FOLLOWER_(LOG_REPLICATION|REPLAY)",
    )


@story("canvass-one-missing", "The whole cluster starts, and the host of one member is off", page=PAGE)
def canvass_one_missing(stage: Stage) -> None:
    cluster = stage.cluster()
    cluster.await_leader()
    cluster.run(1)
    for member in range(3):
        cluster.lose_power(member)
    stage.begin()
    for member in (0, 1):
        cluster.start(member)
    cluster.run(5)
    leader = cluster.await_leader(timeout=90)
    cluster.run(1)
    other = 1 - leader
    stage.step("Two members say where their logs end.", other, "CanvassPosition", to=leader)
    stage.step("Nothing comes from the third for 60 s: a majority is enough then.", leader, QUORUM)
    stage.step("The candidate asks for a vote.", leader, "RequestVote", to=other)
    stage.step("It gets it.", other, "Vote .*vote=True", to=leader)
    stage.step("Two of three are a majority.", leader, WINS)


@story("canvass-minority", "A member without a majority canvasses on", page=PAGE)
def canvass_minority(stage: Stage) -> None:
    cluster = stage.cluster()
    cluster.await_leader()
    cluster.run(1)
    for member in range(3):
        cluster.kill(member)
    stage.begin()
    cluster.start(0)
    cluster.run(70)
    cluster.start(1)
    leader = cluster.await_leader()
    stage.step("One of three members starts.", 0, "election INIT -> CANVASS")
    stage.never("It may not stand: it has not heard from a majority.", 0, "RequestVote")
    stage.step("70 s later another one starts.", 1, "starts")
    stage.step("Now there is a majority.", leader, "election CANVASS -> NOMINATE")


@story("lost-vote", "Votes are lost, and a second ballot follows", page=PAGE)
def lost_vote(stage: Stage) -> None:
    cluster = stage.cluster()
    candidate = stage.await_first("RequestVote")
    one, other = (candidate + 1) % 3, (candidate + 2) % 3
    for voter in (one, other):
        cluster.cut(voter, candidate)
    cluster.run(1.2)
    cluster.heal()
    leader = cluster.await_leader()
    cluster.run(1)
    stage.step("A candidate asks for votes.", candidate, "RequestVote", to=one)
    stage.step("The vote does not arrive: the way back is cut.", one, "Vote .*vote=True", to=candidate)
    stage.step("Without votes the ballot ends after a second.", candidate, "election CANDIDATE_BALLOT -> ")
    stage.step("Votes are asked for again, in a later term.", leader, "RequestVote .*candidateTermId=[1-9]")
    stage.step("Now there is a leader.", leader, WINS)


@story("member-restarts", "One member restarts, in the same term", page=PAGE)
def member_restarts(stage: Stage) -> None:
    cluster, _, leader, follower = stage.led_cluster(b"one")
    cluster.kill(follower)
    stage.begin()
    cluster.start(follower)
    cluster.settle()
    stage.step("A member starts while the others run.", follower, "starts")
    stage.step("It canvasses, as it does at every start.", follower, "CanvassPosition", to=leader)
    stage.step("The leader answers it directly.", leader, "NewLeadershipTerm ", to=follower)
    stage.step("It follows, and replays its own log.", follower, "election CANVASS -> FOLLOWER_REPLAY")
    stage.step("It asks for the log from there on.", follower, "(CatchupPosition|ReplicationRequest)")
    stage.step("It takes part again.", follower, "election FOLLOWER_READY -> CLOSED")


@story("terms-behind", "One member restarts, and the others are terms ahead", page=PAGE)
def terms_missing(stage: Stage) -> None:
    cluster, alice, first, late = stage.led_cluster(b"one")
    cluster.kill(late)
    alice.offer(b"more of the first term")
    cluster.settle()
    cluster.kill(first)
    cluster.start(first)
    second = cluster.await_leader()
    alice.offer(b"two")
    cluster.settle()
    stage.begin()
    cluster.start(late)
    cluster.settle()
    stage.step("A member starts whose log ends in an earlier term.", late, "CanvassPosition", to=second)
    stage.step("The leader answers it directly.", second, "NewLeadershipTerm ", to=late)
    stage.step("It replicates the log, term by term.", late, "election CANVASS -> FOLLOWER_LOG_REPLICATION")
    stage.step("It has all of it, and replays.", late, "election .* -> FOLLOWER_REPLAY")
    stage.step("It takes part again.", late, "election FOLLOWER_READY -> CLOSED")


@story(
    "canvass-later",
    "A leader's host is off, and the others wait for its silence to be long enough",
    page=PAGE,
)
def canvass_later(stage: Stage) -> None:
    cluster, old, _ = stage.idle_cluster()
    cluster.lose_power(old)
    cluster.run(0.5)
    cluster.run_until(lambda: cluster.leader not in (None, old), "another leads")
    new = cluster.await_leader()
    other = 3 - old - new
    cluster.run(0.5)
    stage.step("The leader's host goes off.", old, "loses power")
    stage.step("10 s after its last word a follower enters an election.", new, "enters an election: leader")
    stage.step(
        "It has heard from a majority: that is enough now.", new, "election CANVASS -> NOMINATE: quorum"
    )
    stage.step("It asks for a vote.", new, "RequestVote", to=other)
    stage.step("It leads with two votes of three.", new, WINS)


@story("general-new-leadership-term", "A member hears of a term that is not its next one", page=PAGE)
def general_new_leadership_term(stage: Stage) -> None:
    cluster, _, leader, follower = stage.led_cluster(b"one")
    cluster.kill(follower)
    stage.begin()
    cluster.start(follower)
    cluster.settle()
    stage.step("A member says where its log ends.", follower, "CanvassPosition", to=leader)
    stage.step(
        "It hears of the leader's term, but not of what comes after its own.",
        leader,
        "NewLeadershipTerm .*nextLeadershipTermId=-1",
        to=follower,
    )
    stage.never("That is not enough to follow.", follower, "election CANVASS -> FOLLOWER")
    stage.step("It canvasses again, for the term before.", follower, "CanvassPosition", to=leader)
    stage.step(
        "The leader answers it directly, with its next term.",
        leader,
        "NewLeadershipTerm .*nextLeadershipTermId=[0-9]",
        to=follower,
    )
    stage.step("Now it follows.", follower, "election CANVASS -> FOLLOWER_REPLAY")


@story("nomination-deadline", "Two candidates wait, each for a time of its own", page=PAGE)
def nomination_deadline(stage: Stage) -> None:
    cluster, old, _ = stage.idle_cluster()
    cluster.lose_power(old)
    nominated = stage.await_first("election CANVASS -> NOMINATE")
    first = stage.await_first("election NOMINATE -> CANDIDATE_BALLOT")
    other = next(member for member in range(3) if member not in (old, first))
    cluster.run_until(lambda: cluster.leader == first, "a leader")
    stage.step(
        "The leader's host is off. A follower may stand, and draws a nomination deadline of up to 500 ms.",
        nominated,
        QUORUM,
    )
    stage.step("So does the other one.", first + other - nominated, QUORUM)
    stage.never("Before its deadline neither asks for votes.", other, "RequestVote")
    stage.step("They go on saying where their logs end.", first, "CanvassPosition", to=other)
    stage.step(
        "The first deadline has passed.", first, "election NOMINATE -> CANDIDATE_BALLOT: stands for term"
    )
    stage.step("It asks the other one,", first, "RequestVote", to=other)
    stage.step("which votes for it,", other, "Vote .*vote=True", to=first)
    stage.step("and no longer waits for its own deadline.", other, "election NOMINATE -> FOLLOWER_BALLOT")
    stage.step("The first one leads.", first, WINS)


@story("new-term-event", "A new term begins with its event", page="Log messages")
def new_term_event(stage: Stage) -> None:
    cluster = stage.cluster()
    leader = cluster.await_leader()
    follower = (leader + 1) % 3
    cluster.run(0.5)
    stage.step(
        "The election is about to end: the leader is ready.", leader, "election LEADER_INIT -> LEADER_READY"
    )
    stage.step(
        "The leader appends the event of its term.", leader, "Log: NewLeadershipTermEvent", to=follower
    )
    stage.step("A follower has recorded it.", follower, "AppendPosition .*logPosition=[1-9]", to=leader)
    stage.step(
        "The leader's service is called with the term.", service_of(leader), "onNewLeadershipTermEvent"
    )
    stage.step("So is that of a follower.", service_of(follower), "onNewLeadershipTermEvent")
