#!/usr/bin/env python3
"""Writes the rows of tests/llm/quant_goldens_test.cc: what gguf-py gives for blocks of any bytes.

    pip install gguf
    tests/llm/goldens/make_quants.py

Of each format a hash over the bits of the values of 600 blocks, whose scales are whatever the bytes
say, and sums of the values of one block: plain, times 1, 2, ..., and of squares.
"""
import gguf
import numpy as np

FORMATS = {  # and the bytes of the block that are made plain: a scale of one
    "TQ1": ("TQ1_0", {52: 0, 53: 0x3C}), "TQ2": ("TQ2_0", {64: 0, 65: 0x3C}),
    "NVFP4": ("NVFP4", {0: 0x38, 1: 0x38, 2: 0x38, 3: 0x38}),
    "IQ1S": ("IQ1_S", {0: 0, 1: 0x3C}),
    "IQ1M": ("IQ1_M", {49: 0, 51: 0, 53: 0xC0, 55: 0x30}),
    "IQ2XXS": ("IQ2_XXS", {0: 0, 1: 0x3C}), "IQ2XS": ("IQ2_XS", {0: 0, 1: 0x3C}),
    "IQ2S": ("IQ2_S", {0: 0, 1: 0x3C}), "IQ3XXS": ("IQ3_XXS", {0: 0, 1: 0x3C}),
    "IQ3S": ("IQ3_S", {0: 0, 1: 0x3C})}


def any_bytes(count):
    x, out = 1, bytearray()
    for _ in range(count):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(x >> 24)
    return np.frombuffer(bytes(out), dtype=np.uint8)


def main():
    np.seterr(all="ignore")
    for ours, (name, plain) in FORMATS.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        values = gguf.quants.dequantize(any_bytes(600 * size).reshape(600, size), kind).ravel()
        values = values.astype(np.float32)
        bits = values.view(np.uint32).copy()
        bits[np.isnan(values)] = 0x7FC00000
        digest = 0xCBF29CE484222325
        for word in bits.tolist():
            digest = (digest ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        at = np.arange(size, dtype=np.int64)
        block = (7 * at * at + 37 * at + 11 & 255).astype(np.uint8)
        for byte, value in plain.items():
            block[byte] = value
        one = gguf.quants.dequantize(block.reshape(1, size), kind).ravel().astype(np.float64)
        print("{WeightFormat::k%s, {%s}, %#xu, %r, %r, %r}," %
              (ours, ", ".join("{%d, %d}" % item for item in plain.items()), digest,
               float(one.sum()), float((one * np.arange(1, elements + 1)).sum()),
               float((one * one).sum())))


if __name__ == "__main__":
    main()
