"""Sockets that send at once. debugpy's halves wait for each other's acknowledgements otherwise, some 40 ms a
message."""
import socket


class Socket(socket.socket):
    def _send_at_once(self):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connect(self, address):
        super().connect(address)
        self._send_at_once()

    def accept(self):
        connection, address = super().accept()
        connection._send_at_once()
        return connection, address


socket.socket = Socket
