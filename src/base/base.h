/* base.h - the words every file uses: short integer names, ASSERT, checked arithmetic.
 *
 * ASSERT is for our own mistakes and stays on in release builds. Bytes from outside (files, peers,
 * users) never reach an ASSERT: they get a struct err. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
/* They evaluate what they give twice: nothing that may be another the second time belongs there. */
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN               __attribute__((noreturn))
#define MUST_CHECK             __attribute__((warn_unused_result))

/* Prints the place and the broken condition, then aborts. */
NORETURN void assert_fail(const char *file, int line, const char *cond);
#define ASSERT(c) ((c) ? (void)0 : assert_fail(__FILE__, __LINE__, #c))

/* Checked size arithmetic: true when the result fits, as the overflow builtins but the other way
 * round, so that conditions read "if (!size_mul(...)) refuse". */
static inline bool size_mul(u64 a, u64 b, u64 *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool size_add(u64 a, u64 b, u64 *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Rounds up to a multiple of `align`, a power of two. The caller knows that x is far from 2^64. */
static inline u64 align_up(u64 x, u64 align) {
    return (x + align - 1) & ~(align - 1);
}
