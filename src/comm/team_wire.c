#include "comm/team_wire.h"

#include <math.h>
#include <string.h>

static size_t pieces(size_t n, size_t of) {
    return (n + of - 1) / of;
}

u64 team_wire_bytes(enum team_wire w, size_t n) {
    if (w == TEAM_F16) return pieces(n, TEAM_SEGMENT) * sizeof(float) + n * sizeof(u16);
    if (w == TEAM_Q8) return pieces(n, TEAM_Q8_BLOCK) * sizeof(float) + n;
    return n * sizeof(float);
}

typedef i32 v4i __attribute__((vector_size(16)));

static v4i larger(v4i max, const float *x) {
    v4i b;
    memcpy(&b, x, sizeof b);
    b &= 0x7FFFFFFF;
    v4i more = b > max;
    return (b & more) | (max & ~more);
}

/* The largest magnitude, as the bits of a float: integers compare in vectors, and NaN is largest.
 */
static u32 max_bits(const float *x, size_t n) {
    v4i a = {0}, b = a, c = a, d = a;
    i32 most = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a = larger(a, x + i);
        b = larger(b, x + i + 4);
        c = larger(c, x + i + 8);
        d = larger(d, x + i + 12);
    }
    for (u32 k = 0; k < 4; k++) most = MAX(most, MAX(MAX(a[k], b[k]), MAX(c[k], d[k])));
    for (; i < n; i++) {
        i32 bits;
        memcpy(&bits, x + i, sizeof bits);
        most = MAX(most, bits & 0x7FFFFFFF);
    }
    return (u32)most;
}

static float max_abs(const float *x, size_t n) {
    u32 bits = max_bits(x, n);
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* By which a segment is multiplied on the way: 1 unless its largest element passes 32,768. */
static float segment_scale(const float *x, size_t n) {
    float max = max_abs(x, n);
    int exp;
    if (max <= 32768 || !isfinite(max)) return 1;
    frexpf(max, &exp);
    return ldexpf(1, 15 - exp);
}

static void encode_f16(const struct kernels *k, u8 *out, float *x, size_t n) {
    u16 *half = (u16 *)(void *)(out + pieces(n, TEAM_SEGMENT) * sizeof(float));
    for (size_t at = 0; at < n; at += TEAM_SEGMENT, out += sizeof(float)) {
        size_t len = MIN(n - at, (size_t)TEAM_SEGMENT);
        float scale = segment_scale(x + at, len);
        memcpy(out, &scale, sizeof scale);
        if (scale != 1) k->scale(x + at, scale, len);
        k->to_f16(half + at, x + at, len);
        k->from_f16(x + at, half + at, len);
        if (scale != 1) k->scale(x + at, 1 / scale, len);
    }
}

static void decode_f16(const struct kernels *k, float *y, const u8 *in, size_t n, bool add) {
    const u16 *half = (const u16 *)(const void *)(in + pieces(n, TEAM_SEGMENT) * sizeof(float));
    enum { PART = 512 };
    float part[PART];
    for (size_t at = 0; at < n; at += PART) {
        size_t len = MIN(n - at, (size_t)PART);
        float scale, *to = add ? part : y + at;
        memcpy(&scale, in + at / TEAM_SEGMENT * sizeof scale, sizeof scale);
        k->from_f16(to, half + at, len);
        if (scale != 1) k->scale(to, 1 / scale, len);
        if (add) k->add(y + at, part, len);
    }
}

static void encode_q8(u8 *out, float *x, size_t n) {
    i8 *code = (i8 *)(out + pieces(n, TEAM_Q8_BLOCK) * sizeof(float));
    for (size_t at = 0; at < n; at += TEAM_Q8_BLOCK, out += sizeof(float)) {
        size_t len = MIN(n - at, (size_t)TEAM_Q8_BLOCK);
        float max = max_abs(x + at, len), scale = isfinite(max) ? max / 127 : 0;
        float inverse = scale > 0 ? 1 / scale : 0;
        if (!isfinite(inverse)) inverse = scale = 0; /* smaller than can be told apart */
        memcpy(out, &scale, sizeof scale);
        for (size_t i = at; i < at + len; i++) {
            float v = scale > 0 ? x[i] * inverse : 0;
            code[i] = (i8)(v + (v < 0 ? -0.5f : 0.5f));
            x[i] = (float)code[i] * scale;
        }
    }
}

static void decode_q8(float *y, const u8 *in, size_t n, bool add) {
    const i8 *code = (const i8 *)(in + pieces(n, TEAM_Q8_BLOCK) * sizeof(float));
    for (size_t at = 0; at < n; at += TEAM_Q8_BLOCK, in += sizeof(float)) {
        size_t len = MIN(n - at, (size_t)TEAM_Q8_BLOCK);
        float scale;
        memcpy(&scale, in, sizeof scale);
        for (size_t i = at; i < at + len; i++) {
            float v = (float)code[i] * scale;
            y[i] = add ? y[i] + v : v;
        }
    }
}

void team_wire_encode(const struct kernels *k, enum team_wire w, void *out, float *x, size_t n) {
    if (w == TEAM_F16)
        encode_f16(k, out, x, n);
    else if (w == TEAM_Q8)
        encode_q8(out, x, n);
    else
        memcpy(out, x, n * sizeof *x);
}

void team_wire_decode(const struct kernels *k, enum team_wire w, float *y, const void *in, size_t n,
                      bool add) {
    if (w == TEAM_F16)
        decode_f16(k, y, in, n, add);
    else if (w == TEAM_Q8)
        decode_q8(y, in, n, add);
    else if (add)
        k->add(y, in, n);
    else
        memcpy(y, in, n * sizeof *y);
}
