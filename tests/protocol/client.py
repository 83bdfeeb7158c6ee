"""The acts of a client: it sends, sends again, hears answers, and gives up; by `aiolock/_core`."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol.rules import MARGIN, Bounds, Rules
from tests.protocol.state import Call, Client, Kind, Message, believes, idle, is_held

_ANSWERS = {"granted": "granted", "refused": "refused", "stale": "over", "lost": "lost"}


class Act(NamedTuple):
    """One step of a client."""

    words: str
    client: Client
    messages: tuple[Message, ...] = ()
    # The client is told that it had lost the lock that it gives back.
    tells_of_loss: bool = False
    # It is told that it has freed the lock.
    tells_of_freeing: bool = False


class Acts:
    """The possible steps of clients, within *bounds*, by the *rules* that they keep."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self._bounds = bounds
        self._rules = rules

    def of(self, client: Client, *, has_mark: bool = True) -> Iterator[Act]:
        """
        The possible next steps of *client*, without the answers, which are in `hear` and `hear_renewal`.

        The client *has_mark* unless the other task of the client waits for the answer to a clean release.
        """
        if is_held(client) and client.deadline == 0:
            yield from self._loses(client)
            return
        yield from self._sends_again(client)
        yield from self._goes_on(client, has_mark)
        if self._bounds.renewals and believes(client):
            yield from self._renews(client)

    def _goes_on(self, client: Client, has_mark: bool) -> Iterator[Act]:
        match client.phase:
            case "idle":
                yield from self._begins(client)
            case "acquiring":
                yield self._gives_up(client)
            case "refused":
                yield from self._is_refused(client)
            case "holding":
                yield from self._holds(client, has_mark)
            case "nesting":
                yield self._gives_up_nesting(client)
            case "releasing":
                yield self._stops_waiting(client)

    # Commands.

    def _sent(self, client: Client, kind: Kind, count: int, mark: int = 0) -> tuple[Client, Message]:
        step = client.step + 1
        forget = client.forgettable if kind == "release" and count == 0 and not mark else 0
        message = Message(kind, client.acquisition, step, count, forget, mark=mark)
        forgettable = 0 if forget else client.forgettable
        return client._replace(step=step, call=Call(message), forgettable=forgettable), message

    def _behind(self, client: Client, count: int) -> tuple[Client, tuple[Message, ...]]:
        """A release that nobody waits for; the client sends it until it is answered: all its copies are on the way."""
        client, message = self._sent(client._replace(in_doubt=True), "release", count)
        return client._replace(call=None), self._copies(message)

    def _copies(self, message: Message) -> tuple[Message, ...]:
        return tuple(message._replace(copy=copy) for copy in range(message.copy, self._bounds.copies + 1))

    def _sends_again(self, client: Client) -> Iterator[Act]:
        """A connection failed: answers to its commands do not arrive any more, but the commands themselves may."""
        call, renewing = client.call, client.renewing
        is_sent_again = call is not None and (call.message.kind == "release" or self._bounds.sends_acquires_again)
        if call is not None and is_sent_again and call.message.copy < self._bounds.copies:
            message = call.message._replace(copy=call.message.copy + 1)
            again = client._replace(call=Call(message), in_doubt=True)
            yield Act(f"loses its connection, and sends the {words(message)}", again, (message,))
        if renewing is not None and renewing.message.copy < self._bounds.copies:
            message = renewing.message._replace(copy=renewing.message.copy + 1)
            again = client._replace(renewing=Call(message))
            yield Act(f"loses its connection, and sends the {words(message)}", again, (message,))

    # Before it holds the lock.

    def _begins(self, client: Client) -> Iterator[Act]:
        if client.more:
            acquisition = client.acquisition + 1
            client = Client("acquiring", acquisition, client.more - 1, forgettable=client.forgettable)
            client, message = self._sent(client, "acquire", 1)
            yield Act(f"sends the {words(message)}", client, (message,))

    def _gives_up(self, client: Client) -> Act:
        client, messages = self._behind(client, 0)
        return Act("gives its acquire up, and sends a release", idle(client), messages)

    def _is_refused(self, client: Client) -> Iterator[Act]:
        if client.in_doubt:
            yield self._gives_up(client)
        else:
            yield Act("waits no longer, and sends nothing, for no copy can be late", idle(client))
        if client.tries < self._bounds.copies and self._bounds.sends_acquires_again:
            message = Message("acquire", client.acquisition, 1, 1, 0, client.tries + 1)
            asks = client._replace(phase="acquiring", call=Call(message))
            yield Act(f"tries again, with the {words(message)}", asks, (message,))

    # While it holds the lock.

    def _holds(self, client: Client, has_mark: bool) -> Iterator[Act]:
        if self._bounds.nests and client.holds == 1 and client.step == 1:
            nesting, message = self._sent(client, "acquire", 2)
            yield Act(f"sends the {words(message)}", nesting._replace(phase="nesting"), (message,))
        releasing, message = self._sent(client, "release", client.holds - 1, self._mark(client, has_mark))
        releasing = releasing._replace(phase="releasing", holds=client.holds - 1)
        if releasing.holds == 0:
            releasing = releasing._replace(renewing=None, deadline=0, heard=0)
        yield Act(f"sends the {words(message)}", releasing, (message,))

    def _mark(self, client: Client, has_mark: bool) -> int:
        """The mark of the client after its next release; 0 if the release is not clean."""
        is_settled = not client.in_doubt or not self._rules.releases_cleanly_what_is_settled
        if client.holds > 1 or not is_settled or not (has_mark or not self._rules.has_one_mark_at_a_time):
            return 0
        return client.acquisition if self._rules.has_unique_marks else client.token

    def _gives_up_nesting(self, client: Client) -> Act:
        client, messages = self._behind(client, 1)
        return Act("gives its second acquire up, and sends a release", client._replace(phase="holding"), messages)

    def _stops_waiting(self, client: Client) -> Act:
        assert client.call is not None
        later = self._copies(client.call.message)[1:]
        client = client._replace(call=None, in_doubt=True, phase="holding")
        return Act("waits for its release no longer", client if client.holds else idle(client), later)

    def _renews(self, client: Client) -> Iterator[Act]:
        if client.renewing is not None:
            yield Act("has waited long enough for its renewal", client._replace(renewing=None))
        elif client.renewal < self._bounds.renewals:
            number = client.renewal + 1
            message = Message("renew", client.acquisition, number, 0)
            renewing = client._replace(renewal=number, renewing=Call(message))
            yield Act(f"sends the {words(message)}", renewing, (message,))

    def _loses(self, client: Client) -> Iterator[Act]:
        is_in_doubt = client.in_doubt and self._rules.ends_what_is_lost
        frees = client.renewal > 0 or client.step > 1 or is_in_doubt
        if not frees:
            yield Act("loses the lock by its clock, and sends nothing", idle(client))
        client, messages = self._behind(client, 0)
        how = "loses the lock by its clock, and" if frees else "loses the lock by its clock; its user"
        yield Act(f"{how} sends a release", idle(client), messages)

    # Answers.

    def hear(self, client: Client) -> Act:
        """The answer to the call of the moment arrives."""
        call = client.call
        assert call is not None
        assert call.answer is not None
        status, words_ = call.answer.status, f"hears that it is {_ANSWERS[call.answer.status]}"
        client = client._replace(call=None)
        if client.phase == "acquiring":
            return self._hear_acquire(client, call, words_)
        if status == "lost":
            return Act(words_, idle(client), tells_of_loss=call.message.kind == "release")
        if client.phase == "nesting":
            client = client._replace(phase="holding", holds=2)
            return Act(words_, self._extended(client, call))
        if client.holds:
            return Act(words_, client._replace(phase="holding"))
        is_forgettable = not call.message.mark and (not client.in_doubt or not self._rules.keeps_needed_ends)
        ended = idle(client, forgettable=client.acquisition if is_forgettable else 0)
        return Act(words_, ended, tells_of_freeing=True)

    def _hear_acquire(self, client: Client, call: Call, heard: str) -> Act:
        assert call.answer is not None
        if call.answer.status == "granted":
            granted = client._replace(phase="holding", holds=1, tries=0, heard=call.age, token=call.answer.token)
            holding = self._extended(granted, call)
            if holding.deadline:
                return Act(heard, holding)
            client, messages = self._behind(client, 0)
            return Act(f"{heard}, too late, and sends a release", idle(client), messages)
        if call.answer.status == "refused":
            return Act(heard, client._replace(phase="refused", tries=call.message.copy))
        client, messages = self._behind(client, 0)
        return Act(f"{heard}, and sends a release", idle(client), messages)

    def hear_renewal(self, client: Client) -> Act:
        """The answer to the renewal arrives."""
        call = client.renewing
        assert call is not None
        assert call.answer is not None
        heard = f"hears that its renewal is {_ANSWERS[call.answer.status]}"
        if call.answer.status == "lost":
            return Act(heard, idle(client))
        return Act(heard, self._extended(client._replace(renewing=None), call))

    def _extended(self, client: Client, call: Call) -> Client:
        """`Hold.extend`, in hold.py."""
        assert call.answer is not None
        if call.age > client.heard:
            return client
        age = call.age if self._rules.counts_from_sending else 0
        margin = MARGIN if self._rules.has_margin else 0
        return client._replace(deadline=max(0, call.answer.left - age - margin), heard=call.age)


def words(message: Message) -> str:
    """The command, for people."""
    number = message.acquisition % 10
    match message.kind:
        case "release" if message.mark:
            what = "clean release"
        case "acquire":
            what = "second acquire" if message.holds > 1 else "acquire"
        case "release":
            what = "release of the second acquire" if message.holds else "release"
        case "renew":
            what = f"renewal {message.step}"
    what = f"{what} of acquisition {number}"
    if message.forget:
        what += f", which lets the end of {message.forget % 10} be forgotten"
    return f"{what} (copy {message.copy})" if message.copy > 1 else what
