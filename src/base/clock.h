/* clock.h - the only place that reads a clock. Any thread. */
#pragma once

#include "base/base.h"

/* Monotonic, never steps; origin arbitrary. Leases and deadlines use these. */
u64 clock_ms(void);
u64 clock_us(void);
u64 clock_ns(void);
/* Wall time in Unix milliseconds: for people and for `created` fields only. */
i64 clock_wall_ms(void);
/* Offset of local time from UTC now, in seconds. */
i32 clock_utc_offset_s(void);
void clock_sleep_ms(u32 ms);
/* "2026-01-31T12:00:00Z" of a Unix time. */
const char *clock_iso8601(i64 unix_s, char buf[32]);
