"""Tools for tests of quorums, with several servers."""

from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._keys import QUORUM_KEY
from tests.support.inside import members_of
from tests.support.observe import until


async def run_id(redis: Redis) -> str:
    return str((await redis.info("server"))["run_id"])


async def remember(redis: Redis, since: int = 0) -> None:
    """Let the server believe that it has forgotten nothing since that time, in milliseconds."""
    await redis.set(QUORUM_KEY, f"{await run_id(redis)} {since}")


async def who_has(redises: list[Redis], key: str) -> list[bool]:
    """For each server, whether the key is there."""
    return [bool(await redis.exists(key)) for redis in redises]


async def everywhere(redises: list[Redis], *keys: str) -> None:
    """Return when every server has the keys: an acquire returns when most servers have them."""

    async def have_all() -> bool:
        return all([all(await who_has(redises, key)) for key in keys])

    await until(have_all)


async def every_server_has_answered(client: LockClient) -> None:
    """Return when no server of *client* owes a reply: a release returns when most servers have answered it."""
    await until(lambda: not any(member.only.pending for member in members_of(client)))


async def token_of(redis: Redis, name: str) -> int:
    """The last token of the lock *name*."""
    score = await redis.zscore(f"aiolock_token:{{{name}}}", "token")
    return int(score or 0)


async def let_token_be(redis: Redis, name: str, token: int) -> None:
    """Set the last token of the lock *name*."""
    await redis.zadd(f"aiolock_token:{{{name}}}", {"token": token})
