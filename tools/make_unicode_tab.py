#!/usr/bin/env python3
"""Writes src/formats/template_unicode_tab.c: what Python's str methods know about code points.

The tables follow the Unicode version of the Python that runs this script (3.11: Unicode 14), so
that templates see the same isalpha(), upper() and repr() as under that Python. Usage:

    python3 tools/make_unicode_tab.py > src/formats/template_unicode_tab.c
"""
import re
import sys
import unicodedata

WORD = re.compile(r"\w")
FLAGS = ["SPACE", "ALPHA", "DECIMAL", "DIGIT", "NUMERIC", "UPPER", "LOWER", "TITLE", "CASED",
         "IGNORABLE", "PRINTABLE", "ID_START", "ID_CONTINUE", "WORD"]


def final_sigma(c, before):
    """Whether lower() sees a cased letter through c: tells cased from case-ignorable."""
    return ("A" + c + "\u03a3" if before else c + "\u03a3").lower()[-1] == "\u03c2"


def flags(c):
    cased = final_sigma(c, False)
    ignorable = not cased and final_sigma(c, True)
    tests = [c.isspace(), c.isalpha(), c.isdecimal(), c.isdigit(), c.isnumeric(), c.isupper(),
             c.islower(), unicodedata.category(c) == "Lt", cased, ignorable, c.isprintable(),
             c.isidentifier(), ("a" + c).isidentifier(), bool(WORD.match(c))]
    return sum(1 << i for i, t in enumerate(tests) if t)


def runs(values):
    """(start, value) wherever the value changes."""
    last = None
    for cp, v in values:
        if v != last:
            yield cp, v
        last = v


def emit(items):
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > 100:
            print(line)
            line = "   "
        line += " " + item
    print(line)


def case_table(name, fn):
    """Ranges of simple mappings: every `step`-th code point in [first, last] moves by delta."""
    simple, special = [], []
    for cp in range(sys.maxunicode + 1):
        c = chr(cp)
        m = c if 0xD800 <= cp < 0xE000 else fn(c)
        if m == c:
            continue
        if len(m) > 1:
            special.append((cp, [ord(x) for x in m]))
            continue
        d = ord(m) - cp
        if simple and simple[-1][3] == d and cp - simple[-1][1] in (1, 2) and \
                (simple[-1][2] in (0, cp - simple[-1][1])):
            simple[-1][2] = cp - simple[-1][1]
            simple[-1][1] = cp
        else:
            simple.append([cp, cp, 0, d])
    print(f"const struct tmpl_case_range tmpl_{name}_ranges[] = {{")
    emit([f"{{0x{a:X}, 0x{b:X}, {s or 1}, {d}}}," for a, b, s, d in simple])
    print(f"}};\nconst size_t tmpl_n_{name}_ranges = {len(simple)};\n")
    print(f"const struct tmpl_case_special tmpl_{name}_specials[] = {{")
    emit(["{0x%X, {%s}}," % (cp, ", ".join(f"0x{x:X}" for x in m)) for cp, m in special])
    print(f"}};\nconst size_t tmpl_n_{name}_specials = {len(special)};")


def main():
    table = list(runs((cp, 0 if 0xD800 <= cp < 0xE000 else flags(chr(cp)))
                      for cp in range(sys.maxunicode + 1)))
    classes = sorted({v for _, v in table})
    print("/* Written by tools/make_unicode_tab.py from the Unicode Character Database, version "
          f"{unicodedata.unidata_version}. */\n#include \"formats/template_text.h\"\n")
    print(f"/* Bits, from 0: {', '.join(FLAGS[:7])},\n * {', '.join(FLAGS[7:])}. */")
    print("const u16 tmpl_cp_classes[] = {")
    emit([f"0x{v:04X}," for v in classes])
    print("};\n")
    print("/* First code point << 8 | class, ascending. */\nconst u32 tmpl_cp_runs[] = {")
    emit([f"0x{cp << 8 | classes.index(v):X}," for cp, v in table])
    print(f"}};\nconst size_t tmpl_n_cp_runs = {len(table)};\n")
    case_table("upper", str.upper)
    print()
    case_table("lower", str.lower)
    print()
    case_table("title", str.title)


main()
