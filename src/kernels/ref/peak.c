/* The loops of peak.h in plain C, as wide as the compiler makes them. */
#include "kernels/peak.h"

enum { LANES = 64 };

static float read_all(const float *p, u64 n) {
    float acc[LANES] = {0}, sum = 0;
    for (u64 i = 0; i < n; i += LANES)
        for (u32 j = 0; j < LANES; j++) acc[j] += p[i + j];
    for (u32 j = 0; j < LANES; j++) sum += acc[j];
    return sum;
}

static float read_all4(const float *p, u64 n) {
    enum { STREAMS = 4, EACH = LANES / STREAMS };
    float acc[STREAMS][EACH] = {0}, sum = 0;
    for (u64 i = 0; i < n / STREAMS; i += EACH)
        for (u32 s = 0; s < STREAMS; s++)
            for (u32 j = 0; j < EACH; j++) acc[s][j] += p[s * (n / STREAMS) + i + j];
    for (u32 j = 0; j < LANES; j++) sum += acc[j / EACH][j % EACH];
    return sum;
}

static float f32(const float *seed, u64 rounds) {
    float acc[LANES], sum = 0;
    for (u32 j = 0; j < LANES; j++) acc[j] = seed[j];
    for (u64 i = 0; i < rounds; i++)
        for (u32 j = 0; j < LANES; j++) acc[j] = acc[j] * seed[LANES] + seed[LANES + 1];
    for (u32 j = 0; j < LANES; j++) sum += acc[j];
    return sum;
}

static i32 int8(const i32 *seed, u64 rounds) {
    i32 acc[LANES], sum = 0;
    i8 a[LANES], w[LANES];
    for (u32 j = 0; j < LANES; j++) {
        acc[j] = seed[j];
        a[j] = (i8)(seed[j] & 15);
        w[j] = (i8)(seed[LANES + j] & 15);
    }
    for (u64 i = 0; i < rounds; i++) {
        __asm__ volatile("" : "+m"(a)); /* may have changed: products are not made once */
        for (u32 j = 0; j < LANES; j++) acc[j] = (i32)((u32)acc[j] + (u32)(a[j] * w[j]));
    }
    for (u32 j = 0; j < LANES; j++) sum ^= acc[j];
    return sum;
}

const struct peak_loops PEAK_REF = {.read = read_all,
                                    .read4 = read_all4,
                                    .f32 = f32,
                                    .int8 = int8,
                                    .f32_ops = LANES * 2,
                                    .int8_ops = LANES * 2};
