# SPDX-License-Identifier: BSD-2-Clause
"""judge/probes.py: where the kernel's fields lie, by the VM's kernel, and by copies of it that were changed."""
import os
import re
import sys
import tempfile
import unittest

from samples import ROOT, ran

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
        cls.right = probes.resolved(cls.kernel)

    def changed(self, *changes):
        """What is found where bytes are others, in these files: (files, before, after)."""
        with tempfile.TemporaryDirectory(prefix="probes.") as kernel:
            for name, data in self.files.items():
                for where, before, after in changes:
                    data = data.replace(before, after) if name in where else data
                with open(os.path.join(kernel, name), "wb") as file:
                    file.write(data)
            return probes.resolved(kernel)

    def test_fields(self):
        """The kernel says of all of them where they lie."""
        kernel = probes.Kernel(self.kernel)
        self.assertGreater(len(kernel.parts), 1)
        for of, field in FIELDS:
            at = kernel.members(of)[field]
            print(f"# struct {of}: {field} at {at}")
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
        """Then nothing is guessed."""
        for file in "vmlinux", "initramfs":
            with self.assertRaisesRegex(SystemExit, "does not say where the fields"):
                self.changed((file, b"\x9f\xeb\x01", b"\0\0\0"))
