"""A service of its own that holds the lock `orders` within a trace, prints that span, and releases on command."""

import asyncio
import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiolock import LockClient
from aiolock.opentelemetry import instrument


async def main(url: str) -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    config = instrument(link_after=0.05, tracer_provider=tracers)
    async with LockClient.from_url(url, config=config) as locks:
        with tracers.get_tracer("holder").start_as_current_span("request"):
            await locks.lock("orders").acquire()
        [spans] = config.telemetry._spans.holds.values()  # type: ignore[union-attr]
        context = spans[0].get_span_context()
        print(f"{context.trace_id:032x}-{context.span_id:016x}", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await locks.lock("orders").release()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
