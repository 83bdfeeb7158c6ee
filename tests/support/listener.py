"""The end of a listener, without the loss of a connection that it has just accepted."""

import asyncio


async def stop_listening(listener: asyncio.Server) -> None:
    """
    Close *listener* after its callback was called with each connection that asyncio has accepted.

    That takes two turns of the loop. If the listener is closed meanwhile, asyncio forgets the connection's socket, and
    the garbage collector complains in a later test.
    """
    loop = asyncio.get_running_loop()
    for each in listener.sockets:
        loop.remove_reader(each)
    await _two_turns()
    listener.close()
    # uvloop has accepted connections until now.
    await _two_turns()


async def _two_turns() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
