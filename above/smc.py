#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A TCP program but for the protocol of its sockets. smc.py serve, or put|get FILE at the client; smc.py name gives
this machine the name (user-defined enterprise ID) by which SMC-R, version 2, knows a peer that RoCE v2 can reach."""
import errno
import os
import re
import socket
import struct
import subprocess
import sys

SERVER, IPPROTO_SMC = ("10.0.1.1", 5000), 256  # linux/in.h
NAME = b"HELLO.VERBS".ljust(32) + b"\0"
GENERIC, REQUEST_AND_ANSWER, ADD_UEID, TABLE_ENTRY = 16, 5, 10, 1  # linux/netlink.h, linux/smc.h


def smc():
    try:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SMC)
    except OSError as error:
        if error.errno != errno.EPROTONOSUPPORT:
            raise
        print(f"smc.py: Linux {os.uname().release} has no IPPROTO_SMC: 6.11 has", file=sys.stderr)
        sys.exit(77)


def name():
    """By a command of generic netlink with one attribute, the name."""
    smc().close()
    if os.environ.get("BY") == "tcp":
        return
    said = subprocess.check_output(["genl", "ctrl", "get", "name", "SMC_GEN_NETLINK"], text=True)
    family = int(re.search(r"ID: (\w+)", said)[1], 16)
    message = struct.pack("=BBHHH", ADD_UEID, 1, 0, 4 + len(NAME), TABLE_ENTRY) + NAME + bytes(3)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC) as netlink:
        head = struct.pack("=IHHII", 16 + len(message), family, REQUEST_AND_ANSWER, 0, 0)
        netlink.send(head + message)
        (error,) = struct.unpack_from("=i", netlink.recv(4096), 16)
    if error:
        sys.exit(f"smc.py: {NAME}: {os.strerror(-error)}")


def receive(peer):
    data = b""
    while part := peer.recv(65536):
        data += part
    return data


def serve():
    """Keeps what comes; sends it to one from whom nothing comes."""
    kept = b""
    with smc() as listening:
        listening.bind(SERVER)
        listening.listen()
        with open("/run/ready", "w", encoding="ascii"):
            pass
        while True:
            peer, _ = listening.accept()
            with peer:
                came = receive(peer)
                kept = came or kept
                peer.sendall(b"kept" if came else kept)


def client(what, file):
    with smc() as peer:
        peer.settimeout(30)
        peer.connect(SERVER)
        if what == "put":
            with open(file, "rb") as source:
                peer.sendall(source.read())
        peer.shutdown(socket.SHUT_WR)
        answer = receive(peer)
    if what == "get":
        with open(file, "wb") as target:
            target.write(answer)


def main(what, file="", _=""):
    {"name": name, "serve": serve}.get(what, lambda: client(what, file))()


main(*sys.argv[1:])
