// SPDX-License-Identifier: BSD-2-Clause
/* The test data and its digest, written from their descriptions in common/pattern.h, not from
 * common's code. For pairs.py: in the VM, Python takes a hundred times as long. */
#include <stddef.h>
#include <stdint.h>

uint64_t fnv1a(uint64_t digest, const unsigned char *data, size_t size);
void pattern(unsigned char *out, size_t size, uint64_t seed);

uint64_t fnv1a(uint64_t digest, const unsigned char *data, size_t size) {
    for (size_t i = 0; i < size; i++) digest = (digest ^ data[i]) * 0x100000001b3;
    return digest;
}

void pattern(unsigned char *out, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) {
        uint64_t z = seed + (i / 8 + 1) * 0x9e3779b97f4a7c15;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        z ^= z >> 31;
        out[i] = (unsigned char)(z >> (i % 8 * 8)); // each word's lowest byte first
    }
}
