"""A TCP proxy whose network can be broken on purpose, at a chosen moment, and repaired again.

- A fault holds for every connection, old and new, until another verb replaces it; `heal()` ends all of them.
- A connection that lost bytes is reset by `heal()`: TCP never delivers a stream with a hole in it.
- `when_seen` loses the answer to one request for certain: the server has the bytes and has answered before the fault.
- After `close()` no task, thread or socket of the proxy is left.

A verb is a method that changes what the proxy does: `heal`, `cut`, `freeze` and so on. Not promised: `freeze` and the
two drops act on what the proxy has not forwarded yet; bytes already handed to the kernel arrive. A refused connection
is accepted and then reset, as behind a load balancer without a server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from fencehold.ports.time_limit import TimeLimit
from fencehold.testing.relayed_connection import VERB_WITHIN_S, Connection, Direction, Fault, ThreadedTrip, Trip

__all__ = ["FaultProxy", "ThreadedFaultProxy", "Fault", "Direction", "Counters", "Trip", "ThreadedTrip"]

T = TypeVar("T")

CHUNK_BYTES = 65_536
ANSWER_WITHIN_S = 2.0


#: The faults under which what goes in this direction is lost.
SWALLOWS = {Fault.DROP_ANSWERS: Direction.TO_CLIENT, Fault.DROP_REQUESTS: Direction.TO_SERVER}


@dataclass(frozen=True, slots=True)
class Counters:
    """What the proxy has counted. Bytes count when forwarded or lost; connections when accepted, refused ones too."""

    bytes_to_server: int = 0
    bytes_to_client: int = 0
    bytes_lost: int = 0
    connections_total: int = 0
    connections_open: int = 0
    connections_refused: int = 0


class FaultProxy:
    """A TCP proxy: it forwards `host`:`port` to the server until a verb (`cut`, `freeze`, ...) changes that.

    Verbs take effect at the next turn of the event loop.
    """

    def __init__(
        self,
        server_host: str,
        server_port: int,
        *,
        listen_host: str = "127.0.0.1",
        listen_port: int = 0,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self.host = listen_host
        self.port = listen_port
        self._server_address = (server_host, server_port)
        self._answer_within_s = answer_within_s
        self._fault: Fault | None = None  # in force for every connection
        self._delay_s = 0.0
        self._changed = asyncio.Event()
        self._counters = Counters()
        self._connections: dict[Connection, None] = {}
        self._trips: list[Trip] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def counters(self) -> Counters:
        return replace(self._counters, connections_open=sum(not each.ended for each in self._connections))

    async def start(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        """Reset every connection, stop listening, and return when no task or socket is left."""
        if self._listener is not None:
            self._listener.close()
        open_connections = list(self._connections)
        for connection in open_connections:
            connection.end(reset=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(connection.closed() for connection in open_connections), return_exceptions=True)
        if self._listener is not None:
            await self._listener.wait_closed()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Verbs

    def heal(self) -> None:
        """Forward everything again, forget what `when_seen` waits for, reset connections that lost bytes."""
        self._trips.clear()
        for connection in list(self._connections):
            if connection.lost_bytes:
                connection.end(reset=True)
        self._enter(None)

    def cut(self) -> None:
        """Reset (RST) every connection and refuse new ones."""
        for connection in list(self._connections):
            connection.end(reset=True)
        self._enter(Fault.CUT)

    def close_all(self) -> None:
        """End (FIN) every connection; new connections are treated as before."""
        for connection in list(self._connections):
            connection.end(reset=False)

    def freeze(self) -> None:
        """Forward nothing, keep every socket open, accept new connections and leave them without an answer."""
        self._enter(Fault.FREEZE)

    def delay(self, seconds: float) -> None:
        """Hold each chunk of bytes back for this long, in both directions.

        Raises ValueError if `seconds` is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"a delay cannot be {seconds} s")
        self._enter(None, delay_s=seconds)

    def drop_answers(self) -> None:
        """Forward requests, so that the server executes them, and drop everything that it sends back."""
        self._enter(Fault.DROP_ANSWERS)

    def drop_requests(self) -> None:
        """Drop everything that clients send; forward what the server still sends."""
        self._enter(Fault.DROP_REQUESTS)

    def when_seen(self, pattern: bytes, fault: Fault, direction: Direction = Direction.TO_SERVER) -> Trip:
        """Prepare a fault: when `pattern` passes for the first time, lose the answer and apply the fault.

        Returns its Trip.

        Bytes to the server are forwarded, the first answer is lost, and then the fault comes, so the server has
        executed the request. If no answer comes, the fault comes after `answer_within_s`. Bytes to the client are the
        answer itself.
        """
        trip = Trip(pattern, fault, direction)
        self._trips.append(trip)
        return trip

    def _enter(self, fault: Fault | None, *, delay_s: float = 0.0) -> None:
        self._fault, self._delay_s = fault, delay_s
        self._changed.set()
        self._changed = asyncio.Event()

    # Forwarding

    def _count(self, **more: int) -> None:
        sums = {name: getattr(self._counters, name) + by for name, by in more.items()}
        self._counters = replace(self._counters, **sums)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self._count(connections_total=1)
        if self._fault is Fault.CUT:
            self._count(connections_refused=1)
            connection.end(reset=True)
            return
        self._connections[connection] = None
        connection.task = self._spawn(self._serve(connection))

    async def _serve(self, connection: Connection) -> None:
        try:
            while self._fault is Fault.FREEZE:
                await self._changed.wait()
            connection.add_server(*await asyncio.open_connection(*self._server_address))
            async with asyncio.TaskGroup() as pumps:
                for direction in Direction:
                    pumps.create_task(self._pump(connection, direction))
        except* OSError:
            connection.end(reset=True)  # one side is gone, or there is no server
        else:
            connection.end(reset=False)
        finally:
            # Kept until the sockets are gone: a peer that does not read can hold up a FIN, and close() must find it.
            try:
                await connection.closed()
            finally:
                self._connections.pop(connection, None)

    async def _pump(self, connection: Connection, direction: Direction) -> None:
        reader, writer = connection.reader_of[direction], connection.writer_of[direction]
        while chunk := await reader.read(CHUNK_BYTES):
            await self._hold()
            if self._loses(connection, chunk, direction):
                self._count(bytes_lost=len(chunk))
                connection.lost_bytes = True
                continue
            writer.write(chunk)
            self._count(**{f"bytes_{direction.value}": len(chunk)})
            await writer.drain()
        await self._hold()
        with suppress(OSError, RuntimeError):
            writer.write_eof()

    async def _hold(self) -> None:
        if self._delay_s:
            with suppress(TimeoutError):
                async with TimeLimit(self._delay_s):
                    await self._changed.wait()
        while self._fault is Fault.FREEZE:
            await self._changed.wait()

    def _loses(self, connection: Connection, chunk: bytes, direction: Direction) -> bool:
        if self._fault is not None and SWALLOWS.get(self._fault) is direction:
            return True
        trip = connection.first_seen(self._trips, chunk, direction)
        if trip is not None:
            self._trips.remove(trip)
            connection.lose_answers = True
            self._spawn(self._spring(trip, connection))
        if direction is Direction.TO_CLIENT and connection.lose_answers:
            connection.answer_lost.set()
            return True
        return False

    async def _spring(self, trip: Trip, connection: Connection) -> None:
        with suppress(TimeoutError):
            async with TimeLimit(self._answer_within_s):
                await connection.answer_lost.wait()
        self._apply(trip.fault, connection)
        trip.finish()

    def _apply(self, fault: Fault, connection: Connection) -> None:
        verbs: dict[Fault, Callable[[], None]] = {
            Fault.CUT: self.cut,
            Fault.CLOSE_ALL: self.close_all,
            Fault.FREEZE: self.freeze,
            Fault.DROP_ANSWERS: self.drop_answers,
            Fault.DROP_REQUESTS: self.drop_requests,
            Fault.RESET_ONE: lambda: connection.end(reset=True),
        }
        verbs[fault]()


class ThreadedFaultProxy:
    """A FaultProxy for programs without an event loop. Any thread may call its verbs; they are in force on return."""

    def __init__(
        self,
        server_host: str,
        server_port: int,
        *,
        listen_host: str = "127.0.0.1",
        listen_port: int = 0,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._proxy = FaultProxy(
            server_host, server_port, listen_host=listen_host, listen_port=listen_port, answer_within_s=answer_within_s
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    @property
    def host(self) -> str:
        return self._proxy.host

    @property
    def port(self) -> int:
        return self._proxy.port

    @property
    def counters(self) -> Counters:
        return self._do(lambda: self._proxy.counters)

    def start(self) -> Self:
        self._thread.start()
        try:
            self.await_on_thread(self._proxy.start(), VERB_WITHIN_S)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Reset every connection and return when the thread has ended; a second call does nothing."""
        if self._thread.is_alive():
            self.await_on_thread(self._proxy.close(), VERB_WITHIN_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(VERB_WITHIN_S)
            self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def heal(self) -> None:
        self._do(self._proxy.heal)

    def cut(self) -> None:
        self._do(self._proxy.cut)

    def close_all(self) -> None:
        self._do(self._proxy.close_all)

    def freeze(self) -> None:
        self._do(self._proxy.freeze)

    def delay(self, seconds: float) -> None:
        self._do(lambda: self._proxy.delay(seconds))

    def drop_answers(self) -> None:
        self._do(self._proxy.drop_answers)

    def drop_requests(self) -> None:
        self._do(self._proxy.drop_requests)

    def when_seen(self, pattern: bytes, fault: Fault, direction: Direction = Direction.TO_SERVER) -> ThreadedTrip:
        return ThreadedTrip(self._do(lambda: self._proxy.when_seen(pattern, fault, direction)), self.await_on_thread)

    def await_on_thread(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run the coroutine on the proxy's own thread and return its result."""
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("the proxy is not running: use it between start() and close()")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _do(self, verb: Callable[[], T]) -> T:
        async def act() -> T:
            result = verb()
            # Sockets are closed in the turn after the verb: a caller that connects next must meet the new state.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return result

        return self.await_on_thread(act(), VERB_WITHIN_S)
