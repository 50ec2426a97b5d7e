"""The launchers of a job on several machines watch each other, so that the end of one is the end of all (launch.py).

MindSpore's scheduler notices a machine's death after half a minute, and dies with machine 0. So machine 0's launcher
listens at the port after the master port, and each other one keeps a connection to it. Each byte on it is ALIVE or the
exit code of the sender's job; a connection that is closed without one, or silent, is a machine that has died.
"""

import argparse
import contextlib
import socket
import time

ALIVE = 255
INTERVAL = 0.5  # seconds from one sign of life to the next
SILENCE = 5.0  # seconds without one after which a machine counts as dead
HELLO = b"launch.py of machine "  # then its number as a byte: not everything that connects is one of us


class Peers:
    """The other machines' launchers, as far as they are connected.

    Raises:
        OSError: machine 0 cannot listen.
    """

    def __init__(self, given: argparse.Namespace, port: int) -> None:
        self._own, self._address = given.node_rank, (given.master_addr, port + 1)
        self._links: dict[socket.socket, float] = {}  # when each was heard last
        self._machines: dict[socket.socket, int] = {}  # those that have said who they are, and not farewell
        self._next = 0.0
        self._server: socket.socket | None = None
        self._lost: tuple[str, int] | None = None
        self._alone = given.nnodes == 1
        if self._own == 0 and not self._alone:
            try:
                family = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)[0][0]
                self._server = socket.create_server(self._address, family=family)
            except OSError as error:
                where = f"port {port + 1} at {given.master_addr}, after the master port,"
                raise OSError(f"{where} cannot be used ({error.strerror}); give another --master-port") from None
            self._server.setblocking(False)

    def lost(self) -> tuple[str, int] | None:
        """What has become of the first machine that failed, and its job's exit code (1 if it died); None: all is well.

        Call it several times a second.
        """
        if self._alone or self._lost:
            return self._lost
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL
            self._meet(now)
            self._send(ALIVE)
        for link in list(self._links):
            self._hear(link, now)
        if self._lost:
            self._send(self._lost[1])  # machine 0 tells the others
        return self._lost

    def farewell(self, code: int) -> None:
        """Tell the others how this machine's job ends."""
        self._send(min(code, ALIVE - 1))

    def close(self) -> None:
        """End all connections."""
        for each in (*self._links, *([self._server] if self._server else [])):
            each.close()
        self._links.clear()

    def _meet(self, now: float) -> None:
        with contextlib.suppress(OSError):  # nobody there, or not yet
            if self._server:
                link = self._server.accept()[0]
            elif not self._links and not self._machines:
                link = socket.create_connection(self._address, timeout=INTERVAL)
                link.sendall(HELLO + bytes([self._own]))
                self._machines[link] = 0
            else:
                return
            link.setblocking(False)
            self._links[link] = now

    def _send(self, byte: int) -> None:
        for link in self._links:
            with contextlib.suppress(OSError):  # `_hear` finds out
                link.send(bytes([byte]))

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
            self._links[link] = now
        died = heard == b"" or now - self._links[link] > SILENCE
        if not codes and not died:
            return
        del self._links[link]
        link.close()
        if machine is not None and codes[:1] != [0]:
            what = f"ended with exit code {codes[0]}" if codes else "has died"
            self._lost = self._lost or (f"machine {machine} {what}", codes[0] if codes else 1)
