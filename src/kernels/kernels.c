#include "kernels/kernels.h"

#include <string.h>

#include "kernels/sets.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Lowest first: each set needs all that the sets before it need. */
static const char *const NAMES[] = {"ref", "avx2", "avx512", "vnni", "amx"};
static void (*const FILL[])(struct kernels *) = {ref_fill, avx2_fill, avx512_fill, vnni_fill,
                                                 amx_fill};

/* XCR0: which registers the operating system saves (Intel SDM vol. 1, 13.3). Without that a set
 * must not be used even if the CPU has it. */
static u64 xcr0(void) {
    u32 lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (u64)hi << 32 | lo;
}

static bool all(u32 reg, u32 bits) {
    return (reg & bits) == bits;
}

/* Compilers have several names for them. All processors so far have bf16 where they have int8. */
enum { BIT_AMX_BF16 = 1 << 22, BIT_AMX_TILE = 1 << 24, BIT_AMX_INT8 = 1 << 25 };

static u32 usable(void) {
    u32 a, b, c, d, c1;
    if (!__get_cpuid(1, &a, &b, &c1, &d)) return 1;
    if (!all(c1, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C) || (xcr0() & 0x6) != 0x6) return 1;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !all(b, bit_AVX2 | bit_BMI2)) return 1;
    if (!all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) ||
        (xcr0() & 0xE6) != 0xE6)
        return 2;
    if (!all(c, bit_AVX512VNNI)) return 3;
    return all(d, BIT_AMX_TILE | BIT_AMX_INT8 | BIT_AMX_BF16) && (xcr0() & 0x60000) == 0x60000 &&
                   amx_allowed()
               ? 5
               : 4;
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static bool has_feature(const char *name) {
    int has = 0;
    size_t n = sizeof has;
    return !sysctlbyname(name, &has, &n, NULL, 0) && has;
}
#endif

static const char *const NAMES[] = {"ref", "neon", "dotprod", "i8mm"};
static void (*const FILL[])(struct kernels *) = {ref_fill, neon_fill, dotprod_fill, i8mm_fill};

static u32 usable(void) {
#if defined(__linux__)
    if (!(getauxval(AT_HWCAP) & 1UL << 20 /* HWCAP_ASIMDDP */)) return 2;
    return getauxval(AT_HWCAP2) & 1UL << 13 /* HWCAP2_I8MM */ ? 4 : 3;
#elif defined(__APPLE__)
    if (!has_feature("hw.optional.arm.FEAT_DotProd")) return 2;
    return has_feature("hw.optional.arm.FEAT_I8MM") ? 4 : 3;
#else
    return 2;
#endif
}

#else
static const char *const NAMES[] = {"ref"};
static void (*const FILL[])(struct kernels *) = {ref_fill};
static u32 usable(void) {
    return 1;
}
#endif

enum { MIN_ROWS = 32 };

u64 kernels_chunk_rows(const struct matmul_kernel *k, u64 rows, u64 cols, u32 n_tok,
                       u32 n_threads) {
    enum { CHUNK_BYTES = 256 << 10 };
    u64 row_bytes = 1, align = MAX(k->row_align, (u32)MIN_ROWS);
    (void)dtype_row_bytes(k->type, cols, &row_bytes);
    u64 shares = 4 * (u64)n_threads, near = CHUNK_BYTES / MAX(row_bytes, 1);
    bool panels = k->panel_rows && n_tok >= k->panels_from;
    u64 most = MIN(rows / shares, MAX(near, (u64)k->pass_rows));
    if (panels) align = most < k->pass_rows ? k->panel_rows : k->pass_rows;
    return MAX(align, most / align * align);
}

static u64 alone_rows(const struct matmul_kernel *k) {
    return k->alone_rows ? k->alone_rows : MAX(k->row_align, (u32)MIN_ROWS);
}

u64 kernels_alone_pieces(const struct matmul_kernel *k, u64 rows) {
    return rows / alone_rows(k) + (rows % alone_rows(k) != 0);
}

void kernels_alone_mul(const struct matmul_kernel *k, const struct mul_args *a, u64 first,
                       u64 end) {
    struct mul_args x = *a;
    u64 side = alone_rows(k), full = k->alone_rows ? x.rows / side : 0;
    if (first < full) {
        x.apart = full * k->row_align;
        x.row0 = first * k->row_align;
        x.row1 = MIN(end, full) * k->row_align;
        k->mul(k, &x);
    }
    if (end <= full) return;
    x.apart = 0; /* what is left over, or all */
    x.row0 = MAX(first, full) * side;
    x.row1 = MIN(end * side, x.rows);
    k->mul(k, &x);
}

const char *const *kernels_sets(u32 *n_known, u32 *n_usable) {
    *n_known = ARRAY_LEN(NAMES);
    *n_usable = usable();
    return NAMES;
}

static bool bad_mask(const char *mask, struct err *e) {
    char list[128];
    size_t n = 0;
    for (u32 i = 0; i < ARRAY_LEN(NAMES); i++) {
        size_t len = strlen(NAMES[i]);
        memcpy(list + n, NAMES[i], len);
        memcpy(list + n + len, ", ", 3);
        n += len + 2;
    }
    list[n - 2] = 0;
    return err_set(e, ERR_ARG,
                   "cpu mask \"%.40s\" is no kernel set of this architecture: use one of %s", mask,
                   list);
}

bool kernels_select(struct kernels *k, const char *mask, struct err *e) {
    u32 top = usable();
    if (mask && *mask) {
        u32 i = 0;
        while (i < ARRAY_LEN(NAMES) && strcmp(mask, NAMES[i]) != 0) i++;
        if (i == ARRAY_LEN(NAMES)) return bad_mask(mask, e);
        top = MIN(top, i + 1);
    }
    for (u32 i = 0; i < top; i++) {
        FILL[i](k);
        k->set = NAMES[i];
    }
    return true;
}
