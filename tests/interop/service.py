"""Redisson, driven from Python: a JVM, its clients, and calls in their threads."""

import asyncio
import itertools
import json
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

# One of several JVMs, for a short time: it starts fast, and takes little memory.
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Xshare:auto", "-Dio.netty.eventLoopThreads=4")


class RedissonError(Exception):
    """A call that failed in Java: *kind* is the name of the exception's class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True)
class Answer:
    """The result of a call; its beginning and end, on the monotonic clock of the machine."""

    value: Any
    began: float
    ended: float


class Service:
    """A JVM with one version of Redisson. Calls are answered in any order, and belong to no event loop."""

    def __init__(self, version: str, class_path: str) -> None:
        self.version = version
        self._process = subprocess.Popen(
            ["java", *_OPTIONS, "-cp", class_path, "LockService"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # slf4j complains there that it has no logger.
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Answer]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, call: str, **command: object) -> "Future[Answer]":
        number = next(self._numbers)
        future: Future[Answer] = Future()
        self._waiting[number] = future
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "call": call} | command) + "\n")
        self._process.stdin.flush()
        return future

    async def connect(self, url: str, *, watchdog: float = 30, cluster: bool = False) -> "Redisson":
        """A new client. The watchdog's lease is in seconds."""
        client = f"client {next(self._numbers)}"
        connecting = self.call("connect", client=client, address=url, watchdog=round(watchdog * 1000), cluster=cluster)
        await asyncio.wrap_future(connecting)
        return Redisson(self, client)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._waiting.pop(answer["id"])
            if future.cancelled():
                continue
            if "error" in answer:
                future.set_exception(RedissonError(answer["error"], answer["message"]))
            else:
                future.set_result(Answer(answer["value"], answer["began"], answer["ended"]))
        for future in self._waiting.values():
            if not future.cancelled():
                future.set_exception(RedissonError("none", "the JVM has ended"))


class Redisson:
    """A client of Redisson; its threads are numbered."""

    def __init__(self, service: Service, client: str) -> None:
        self._service = service
        self.client: str = client

    def post(self, call: str, name: str = "", *, thread: int = 1, **command: object) -> "asyncio.Future[Answer]":
        """Begin a call of the lock in that thread, and do not wait for its end. Durations are seconds."""
        for duration in ("wait", "lease"):
            if duration in command:
                command[duration] = round(float(str(command[duration])) * 1000)
        calling = self._service.call(call, client=self.client, thread=thread, name=name, **command)
        return asyncio.wrap_future(calling)

    async def ask(self, call: str, name: str = "", *, thread: int = 1, **command: object) -> Any:
        """The value of a call; an exception of Java's is a `RedissonError`."""
        return (await self.post(call, name, thread=thread, **command)).value

    async def parked(self, thread: int = 1) -> bool:
        """Whether that thread waits for a message."""
        return bool(await self.ask("parked", thread=thread))

    async def shutdown(self) -> None:
        await self.ask("shutdown")
