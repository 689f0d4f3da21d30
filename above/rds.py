#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""RDS datagrams: rds.py serve, or rds.py put|get FILE BYTES at the client."""
import os
import socket
import sys

CLIENT, SERVER, CHUNK = ("10.0.1.2", 4000), ("10.0.1.1", 4000), 4096
SOL_RDS, SO_RDS_TRANSPORT, TCP = 276, 8, 2  # linux/rds.h


def opened(address):
    rds = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)
    rds.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # above what is in flight
    rds.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    if os.environ.get("BY") == "tcp":
        rds.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, TCP)
    rds.bind(address)
    return rds


def send(rds, data, to):
    for at in range(0, len(data), CHUNK):
        rds.sendto(data[at : at + CHUNK], to)


def receive(rds, size):
    data = b""
    while len(data) < size:
        data += rds.recv(CHUNK)
    return data


def serve():
    """Keeps what comes. The word "get" sends it back; "end" is answered: all is there."""
    rds, data = opened(SERVER), b""
    with open("/run/ready", "w", encoding="ascii"):
        pass
    while True:
        message = rds.recv(CHUNK)
        if message == b"get":
            send(rds, data, CLIENT)
        elif message == b"end":
            send(rds, message, CLIENT)
        else:
            data += message
            if len(message) < CHUNK:
                sys.exit("a datagram of another size")


def main(what, file="", size="0"):
    if what == "serve":
        serve()
    rds = opened(CLIENT)
    rds.settimeout(30)
    if what == "put":
        with open(file, "rb") as source:
            send(rds, source.read(), SERVER)
        rds.sendto(b"end", SERVER)
        rds.recv(CHUNK)  # a socket that is closed drops what it has not sent yet
    else:
        rds.sendto(b"get", SERVER)
        with open(file, "wb") as target:
            target.write(receive(rds, int(size)))


main(*sys.argv[1:])
