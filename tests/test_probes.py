#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""judge/probes.py: where the kernel's fields lie, by the VM's kernel, and by copies of it that were changed."""
import os
import re
import sys
import tempfile
import unittest

from samples import ROOT, main, ran

sys.path.insert(0, os.path.join(ROOT, "judge"))
import probes  # noqa: E402 pylint: disable=wrong-import-position

FIELDS = sorted(set(re.findall(r"([a-z]\w+)\.(\w+)", probes.PROBES)))


class Probes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """files: what is looked at of the kernel's; of the kernel proper that is its BTF."""
        made = ran([os.path.join(ROOT, "testenv", "kernel.sh")], check=True)
        cls.kernel, cls.files = made.stdout.strip(), {}
        for name in ("vmlinux", "initramfs"):
            with open(os.path.join(cls.kernel, name), "rb") as file:
                cls.files[name] = file.read()
        types, names = next(probes.sections(cls.files["vmlinux"]))
        header = probes.HEADER.pack(0xEB9F, 1, 0, 24, 0, len(types), len(types), len(names) - 1)
        cls.files["vmlinux"] = header + types + names[1:]
        cls.right = probes.resolved(directory=cls.kernel)

    def changed(self, *changes):
        """What is found where bytes are others, in these files: (files, before, after)."""
        with tempfile.TemporaryDirectory(prefix="probes.") as kernel:
            for name, data in self.files.items():
                for where, before, after in changes:
                    data = data.replace(before, after) if name in where else data
                with open(os.path.join(kernel, name), "wb") as file:
                    file.write(data)
            return probes.resolved(directory=kernel)

    def test_fields(self):
        """The kernel says of all of them where they lie, and it is where they lie in the others."""
        kernel = probes.Kernel(self.kernel)
        self.assertGreater(len(kernel.parts), 1)
        for of, field in FIELDS:
            at = kernel.members(of)[field]
            print(f"# struct {of}: {field} at {at}")
            self.assertEqual(at, kernel.known(of)[field], f"{of}.{field}")
        self.assertEqual(self.changed(), self.right)
        self.assertNotIn("#", self.right)

    def test_another_layout(self):
        """Names of the same length change places, so two fields do."""
        first, second = b"\0max_send_wr\0", b"\0max_recv_wr\0"
        text = self.changed(
            ("vmlinux", first, b"\0max_none_wr\0"),
            ("vmlinux", second, first),
            ("vmlinux", b"\0max_none_wr\0", second),
        )
        self.assertIn(" send=+52($arg2):u32 receive=+48($arg2):u32 ", text)
        self.assertNotIn("#", text)

    def test_without_btf(self):
        """Of releases in which all was the same, it is known; of others nothing is guessed."""
        magic, version = (
            b"\x9f\xeb\x01",
            re.search(rb"vermagic=\d+\.\d+\.", self.files["initramfs"])[0],
        )
        for files in ("vmlinux", "initramfs", "vmlinux initramfs"):
            self.assertEqual(self.changed((files, magic, b"\0\0\0")), self.right)
        for other in (b"vermagic=5.9.", b"vermagic=7.9."):
            with self.assertRaisesRegex(
                probes.NoLayout, f"this kernel, {other[9:12].decode()}, does not say"
            ):
                self.changed(("vmlinux", magic, b"\0\0\0"), ("initramfs", version, other))


if __name__ == "__main__":
    main()
