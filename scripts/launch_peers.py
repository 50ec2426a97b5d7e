"""The launchers of a job on several machines watch each other, so that the end of one is the end of all (launch.py).

MindSpore's scheduler notices a machine's death after half a minute, and dies with machine 0. So machine 0's launcher
listens at the port after the master port, and each other one keeps a connection to it. Each byte on it is ALIVE or the
exit code of the sender's job; a connection that is closed without one, or silent, is a machine that has died.
"""

import argparse
import contextlib
import socket
import threading
import time

ALIVE = 255
INTERVAL = 0.25  # seconds from one sign of life to the next
SILENCE = 10.0  # seconds without one after which a machine counts as dead
HELLO = b"launch.py of machine "  # then its number as a byte: not everything that connects is one of us


class Peers:
    """The other machines' launchers, as far as they are connected, watched by a thread of its own.

    Raises:
        OSError: machine 0 cannot listen.
    """

    def __init__(self, given: argparse.Namespace, port: int) -> None:
        self._own, self._address = given.node_rank, (given.master_addr, port + 1)
        self._heard: dict[socket.socket, float] = {}  # when each connection was heard last
        self._machines: dict[socket.socket, int] = {}  # the connections, also former ones, that said who they are
        self._server: socket.socket | None = None
        self._lost: tuple[str, int] | None = None
        self._word = ALIVE
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
        if given.nnodes == 1:
            return
        if self._own == 0:
            try:
                family = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)[0][0]
                self._server = socket.create_server(self._address, family=family)
            except OSError as error:
                where = f"port {port + 1} at {given.master_addr}, after the master port,"
                raise OSError(f"{where} cannot be used ({error.strerror}); give another --master-port") from None
            self._server.setblocking(False)
        self._thread.start()

    def lost(self) -> tuple[str, int] | None:
        """What became of the first machine that failed, and its job's exit code (1: it died); None: all is well."""
        return self._lost

    def farewell(self, code: int) -> None:
        """Tell the others how this machine's job ends."""
        self._word = min(code, ALIVE - 1)

    def close(self) -> None:
        """End all connections, the last word said."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(INTERVAL):
            now = time.monotonic()
            with contextlib.suppress(OSError):  # nobody there, or not yet
                self._meet(now)
            self._say()
            for link in list(self._heard):
                self._hear(link, now)
        self._say()
        for each in (*self._heard, *([self._server] if self._server else [])):
            each.close()

    def _meet(self, now: float) -> None:
        while self._server:
            self._add(self._server.accept()[0], now)
        if not self._machines:
            link = socket.create_connection(self._address, timeout=1)
            link.sendall(HELLO + bytes([self._own]))
            self._machines[link] = 0
            self._add(link, now)

    def _add(self, link: socket.socket, now: float) -> None:
        link.setblocking(False)
        self._heard[link] = now

    def _say(self) -> None:
        for link in self._heard:
            with contextlib.suppress(OSError):  # `_hear` finds out
                link.send(bytes([self._word]))

    def _hear(self, link: socket.socket, now: float) -> None:
        try:
            heard: bytes | None = link.recv(4096)
        except BlockingIOError:
            heard = None
        except OSError:
            heard = b""
        if heard and link not in self._machines and heard.startswith(HELLO) and len(heard) > len(HELLO):
            self._machines[link], heard = heard[len(HELLO)], heard[len(HELLO) + 1 :] or bytes([ALIVE])
        machine = self._machines.get(link)
        codes = [byte for byte in heard or b"" if byte != ALIVE] if machine is not None else []
        if heard:
            self._heard[link] = now
        if codes or heard == b"" or now - self._heard[link] > SILENCE:
            del self._heard[link]
            link.close()
            if machine is not None and codes[:1] != [0] and self._lost is None:
                what = f"ended with exit code {codes[0]}" if codes else "has died"
                self._lost = f"machine {machine} {what}", codes[0] if codes else 1
                if self._word == ALIVE:
                    self._word = self._lost[1]  # machine 0 tells the others
