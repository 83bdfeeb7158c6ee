"""
Functions that make blocking methods from asynchronous ones: one line for each, with the same parameters and types.

For type checkers, editors and `help`, the result is a plain function with the docstring of the asynchronous method:
where the docstring says "task", read "thread", and where it says "cancelling", read "an interrupt".
"""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from aiolock._blocking.deputy import Job
from aiolock._blocking.runner import Runner
from aiolock._errors import ClientClosedError
from aiolock._process import Unique
from aiolock._words import refuse_attribute_in_threads, shown_as

P = ParamSpec("P")
T = TypeVar("T")
# A class of the asynchronous library, the result of its functions, and the blocking class for that result.
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
G = TypeVar("G")
B = TypeVar("B")


class Untaken(BaseException):
    """The error with which a block is left if an interrupt came before the thread got its grant."""


class Leavable(Protocol):
    """An acquired object that can be given back."""

    def _refuse_lost(self) -> None:
        """Raise if its lock is lost."""

    async def _leave(self, error: BaseException | None) -> None:
        """Give the object back, in the loop; a failure here does not replace an *error* that is on its way."""


L = TypeVar("L", bound=Leavable)


@shown_as("handle")
class Handle(Unique, Generic[A_co]):
    """The blocking counterpart of an asynchronous object."""

    __slots__ = ("__weakref__", "_async", "_runner")

    if not TYPE_CHECKING:
        __getattr__ = refuse_attribute_in_threads

    def __init__(self, runner: Runner, *, face_of: A_co) -> None:
        self._runner = runner
        self._async = face_of

    def __repr__(self) -> str:
        return f"<blocking {repr(self._async)[1:]}"

    def _refuse_lost(self) -> None:
        """Raise if this object's lock is lost: when the client is closed, the loss says more than that it is closed."""

    def _own(self, handle: object, must: str) -> Any:
        """
        The asynchronous object of *handle*; the text *must*, with which an error begins, tells users what to pass.

        Raises:
            TypeError: *handle* is no blocking object.
            ValueError: it is of another client, whose locks work in another event loop only.
        """
        if not isinstance(handle, Handle):
            raise TypeError(f"{must}, not {handle!r}")
        if handle._runner is not self._runner:
            raise ValueError(f"{must}, not {handle!r}, which is of another client: each has an event loop of its own")
        return handle._async


def verb(
    function: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
    undo: Callable[Concatenate[T, A, P], Coroutine[Any, Any, object]] | None = None,
) -> Callable[Concatenate[Handle[A], P], T]:
    """A blocking method that waits for *function*; *undo* undoes its effect if an interrupt ends the wait."""

    def job(handle: Handle[A], /, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        async def back(result: T) -> None:
            if undo is not None:
                await undo(result, handle._async, *args, **kwargs)

        return Job(partial(function, handle._async, *args, **kwargs), back)

    return waited_for(job, function)


def grant(
    function: Callable[Concatenate[A, P], Coroutine[Any, Any, G]], made: Callable[..., L]
) -> Callable[Concatenate[Handle[A], P], L]:
    """As `perhaps`, for a *function* that always acquires."""
    return cast("Callable[Concatenate[Handle[A], P], L]", perhaps(function, made))


def perhaps(
    function: Callable[Concatenate[A, P], Coroutine[Any, Any, G | None]], made: Callable[..., L]
) -> Callable[Concatenate[Handle[A], P], L | None]:
    """As `verb`, for a *function* that acquires or returns ``None``; *made* makes a blocking object of the grant."""

    def job(handle: Handle[A], /, *args: P.args, **kwargs: P.kwargs) -> Job[L | None]:
        async def granted() -> L | None:
            found = await function(handle._async, *args, **kwargs)
            return None if found is None else made(handle._runner, face_of=found)

        return Job(granted, left)

    return waited_for(job, function)


def part(function: Callable[Concatenate[A, P], G], made: Callable[..., B]) -> Callable[Concatenate[Handle[A], P], B]:
    """A method for a *function* without I/O; *made* makes a blocking object, `face_of` its result."""

    @wraps(function, updated=())
    def called(handle: Handle[A], /, *args: P.args, **kwargs: P.kwargs) -> B:
        return made(handle._runner, face_of=function(handle._async, *args, **kwargs))

    return called


def plain(function: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Handle[A], P], T]:
    """A method for a *function* that waits for nothing; the loop calls it, if the loop runs."""

    @wraps(function, updated=())
    def called(handle: Handle[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return function(handle._async, *args, **kwargs)

        runs = handle._runner.is_running
        return handle._runner.result_of(Job(work)) if runs else function(handle._async, *args, **kwargs)

    return called


async def left(granted: Leavable | None) -> None:
    """Give *granted* back, because no thread got it."""
    if granted is not None:
        await granted._leave(Untaken())


def waited_for(
    job_of: Callable[Concatenate[Handle[A], P], Job[T]], function: Callable[..., object]
) -> Callable[Concatenate[Handle[A], P], T]:
    """A method like *function* that sends the job of *job_of*, and waits for it."""

    # An interrupt may come at any step of Python up to the caller, so nothing is called after the `try`.
    @wraps(function, updated=())
    def called(handle: Handle[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        job = job_of(handle, *args, **kwargs)
        try:
            return handle._runner.result_of(job)
        except BaseException as error:
            job.give_up()
            if isinstance(error, ClientClosedError) and error.reason == "closed":
                handle._refuse_lost()
            raise

    return called
