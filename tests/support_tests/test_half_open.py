"""Closed connections are cut off; open ones are left alone."""

import asyncio

from tests.support.half_open import cut_off


async def test_only_closed_connections_are_cut_off() -> None:
    over = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(deaf, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        _, closed = await asyncio.open_connection(*address)
        _, kept = await asyncio.open_connection(*address)
        # The buffers of the system take less.
        closed.write(bytes(50_000_000))
        closed.close()
        await asyncio.sleep(0)
        assert closed.transport.get_write_buffer_size() > 0
        await cut_off()
        # Other loops have ways of their own.
        if hasattr(asyncio.get_running_loop(), "_selector"):
            assert closed.transport.get_write_buffer_size() == 0
        kept.write(b"x")
        await kept.drain()
        assert not kept.is_closing()
        over.set()
        closed.transport.abort()
        kept.close()
        await kept.wait_closed()
