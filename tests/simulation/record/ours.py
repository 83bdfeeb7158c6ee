"""The blocks of aiolock, as users write them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiolock
from tests.simulation.record.stage import NAME, Belief, Block, Party

LEASE = 6.0


def client_of(party: Party) -> aiolock.LockClient:
    """The client of the party's process."""

    def make() -> aiolock.LockClient:
        return aiolock.LockClient(party.redis, config=aiolock.LockConfig(lease=LEASE))

    client: aiolock.LockClient = party.once("client", make)
    return client


async def connect(party: Party) -> None:
    """Open the party's connections before the story begins."""
    await party.redis.ping()
    if party.stage.is_ours:
        await client_of(party).ping()


def _in_its_block() -> bool:
    """True: a loss cancels the block, so that all work in the block is work under the lock."""
    return True


def lock(*, lease: float | None = None) -> Block:
    """``async with lock``; with a *lease*, it is not renewed."""

    @asynccontextmanager
    async def block(party: Party) -> AsyncIterator[Belief]:
        async with client_of(party).lock(NAME).hold(lease=lease):
            yield _in_its_block

    return block


@asynccontextmanager
async def renewed_lock(party: Party) -> AsyncIterator[Belief]:
    """A block whose lease the party renews by hand."""
    async with client_of(party).lock(NAME) as lease:
        party.kept["renew"] = lease.renew
        yield _in_its_block


@asynccontextmanager
async def fair_lock(party: Party) -> AsyncIterator[Belief]:
    async with client_of(party).fair_lock(NAME):
        yield _in_its_block


@asynccontextmanager
async def read_write_lock(party: Party) -> AsyncIterator[Belief]:
    both = client_of(party).read_write_lock(NAME)
    async with both.read if party.shared else both.write:
        yield _in_its_block
