"""A wire with a delay: what comes at a port goes on to HOST:PORT so much later, both ways.

    python3 wire.py 19092 kafka:19092 /run/slackwater/delay

The file has the delay in milliseconds, and is read ten times a second. It needs no rights
and nothing of the kernel's, which `tc netem` does.
"""

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 16
READ_EVERY_S = 0.1
MOST_CHUNKS = 1 << 10


class Delay:
    """What a file says, in seconds."""

    def __init__(self, file: Path) -> None:
        self._file, self._seconds, self._read_at = file, 0.0, 0.0

    def seconds(self) -> float:
        """As of the last tenth of a second."""
        if time.monotonic() >= self._read_at:
            self._read_at = time.monotonic() + READ_EVERY_S
            with suppress(OSError, ValueError):  # it may just be written
                self._seconds = int(self._file.read_text()) / 1000
        return self._seconds


async def carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: Delay
) -> None:
    """One way, in order, until it ends."""
    underway: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_CHUNKS)

    async def depart() -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(CHUNK)
            except OSError:
                data = b""
            await underway.put((time.monotonic() + delay.seconds(), data))

    departing = asyncio.create_task(depart())
    try:
        while True:
            at, data = await underway.get()
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
    except OSError:  # the peer has closed: the other direction ends as well
        writer.transport.abort()
    finally:
        departing.cancel()


async def connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str, delay: Delay
) -> None:
    """Both ways, until one of them ends."""
    host, _, port = to.rpartition(":")
    try:
        onward = await asyncio.open_connection(host, int(port))
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(carry(reader, onward[1], delay), carry(onward[0], writer, delay))
    finally:
        onward[1].close()
        writer.close()


async def serve(port: int, to: str, delay: Delay) -> None:
    """For ever."""
    server = await asyncio.start_server(
        lambda reader, writer: connect(reader, writer, to, delay), None, port
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], Delay(Path(sys.argv[3]))))
