/* strftime for strftime_now: the C locale's texts, glibc's flags, no clock and no time zone data.
 */
#include <stdio.h>
#include <string.h>

#include "formats/template_builtin.h"

struct civil {
    i64 year;
    int month, day, hour, minute, second; /* month and day count from 1 */
    int weekday, yearday;                 /* from 0; 0 is Sunday */
    i64 unix_s;
};

static bool is_leap(i64 y) {
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

/* Proleptic Gregorian date of a day number, 1970-01-01 being 0, over 400-year eras that begin in
 * March (the algorithm is Howard Hinnant's "civil_from_days"). */
static struct civil civil_of(i64 unix_s) {
    i64 days = unix_s / 86400 - (unix_s % 86400 < 0), s = unix_s - days * 86400;
    i64 z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    i64 yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    i64 doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    struct civil c = {.unix_s = unix_s};
    c.day = (int)(doy - (153 * mp + 2) / 5 + 1);
    c.month = (int)(mp < 10 ? mp + 3 : mp - 9);
    c.year = yoe + era * 400 + (c.month <= 2);
    c.hour = (int)(s / 3600);
    c.minute = (int)(s / 60 % 60);
    c.second = (int)(s % 60);
    c.weekday = (int)(((days + 4) % 7 + 7) % 7);
    c.yearday = (int)(mp < 10 ? doy + 59 + is_leap(c.year) : doy - 306);
    return c;
}

/* ISO 8601 week number and the year it belongs to. */
static int iso_week(const struct civil *c, i64 *year) {
    int monday = (c->weekday + 6) % 7, week = (c->yearday - monday + 10) / 7;
    *year = c->year;
    if (week == 0) {
        --*year;
        int last = c->yearday + 365 + is_leap(*year);
        return (last - monday + 10) / 7;
    }
    int rest = 365 + is_leap(c->year) - c->yearday; /* days left, this one included */
    if (week == 53 && rest <= 3 - monday) return ++*year, 1;
    return week;
}

struct field { /* one conversion: a text, or a number with its usual padding */
    const char *text;
    i64 number;
    int width;
    char pad;
};

static struct field number(i64 n, int width) {
    return (struct field){NULL, n, width, '0'};
}
static struct field padded(i64 n) {
    return (struct field){NULL, n, 2, ' '};
}
static struct field text(const char *s) {
    return (struct field){.text = s};
}

/* False for a conversion that strftime does not know. */
static bool field_of(const struct civil *c, char conv, struct field *f) {
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    int hour12 = c->hour % 12 ? c->hour % 12 : 12, monday = (c->weekday + 6) % 7;
    i64 iso_year;
    int week = iso_week(c, &iso_year);
    switch (conv) {
    case 'A': *f = text(days[c->weekday]); break;
    case 'a': *f = (struct field){.text = days[c->weekday], .width = 3}; break;
    case 'B': *f = text(months[c->month - 1]); break;
    case 'b':
    case 'h': *f = (struct field){.text = months[c->month - 1], .width = 3}; break;
    case 'C': *f = number(c->year / 100, 2); break;
    case 'd': *f = number(c->day, 2); break;
    case 'e': *f = padded(c->day); break;
    case 'f': *f = number(0, 6); break; /* Python's own: microseconds */
    case 'G': *f = number(iso_year, 1); break;
    case 'g': *f = number(iso_year % 100, 2); break;
    case 'H': *f = number(c->hour, 2); break;
    case 'I': *f = number(hour12, 2); break;
    case 'j': *f = number(c->yearday + 1, 3); break;
    case 'k': *f = padded(c->hour); break;
    case 'l': *f = padded(hour12); break;
    case 'M': *f = number(c->minute, 2); break;
    case 'm': *f = number(c->month, 2); break;
    case 'n': *f = text("\n"); break;
    case 'P': *f = text(c->hour < 12 ? "am" : "pm"); break;
    case 'p': *f = text(c->hour < 12 ? "AM" : "PM"); break;
    case 'S': *f = number(c->second, 2); break;
    case 's': *f = number(c->unix_s, 1); break;
    case 't': *f = text("\t"); break;
    case 'U': *f = number((c->yearday + 7 - c->weekday) / 7, 2); break;
    case 'u': *f = number(c->weekday ? c->weekday : 7, 1); break;
    case 'V': *f = number(week, 2); break;
    case 'W': *f = number((c->yearday + 7 - monday) / 7, 2); break;
    case 'w': *f = number(c->weekday, 1); break;
    case 'Y': *f = number(c->year, 1); break;
    case 'y': *f = number(c->year % 100, 2); break;
    case 'Z': /* a naive datetime has no zone */
    case 'z': *f = text(""); break;
    case '%': *f = text("%"); break;
    default: return false;
    }
    return true;
}

/* Conversions that stand for others. */
static const char *compound(char conv) {
    switch (conv) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'r': return "%I:%M:%S %p";
    case 'T':
    case 'X': return "%H:%M:%S";
    default: return NULL;
    }
}

static void put_field(struct trun *r, struct tbuf *b, struct field f, char flag) {
    char out[32];
    if (f.text) {
        snprintf(out, sizeof out, "%.*s", f.width ? f.width : 31, f.text);
        bool noon = out[0] && strchr("AP", out[0]) && out[1] == 'M'; /* AM and PM: # makes small */
        bool upper = (flag == '^' || (flag == '#' && !noon)) && strchr("ap", out[0]) == NULL;
        for (char *p = out; *p; p++) {
            if (upper && *p >= 'a' && *p <= 'z')
                *p ^= 0x20;
            else if (flag == '#' && noon)
                *p |= 0x20;
        }
    } else {
        char pad = flag == '_' ? ' ' : flag == '0' ? '0' : f.pad;
        int width = flag == '-' ? 1 : f.width;
        snprintf(out, sizeof out, pad == '0' ? "%0*lld" : "%*lld", width, (long long)f.number);
    }
    tmpl_putz(r, b, out);
}

void tmpl_put_time(struct trun *r, struct tbuf *b, struct view format, i64 unix_s) {
    struct civil c = civil_of(unix_s);
    for (size_t i = 0; i < format.n && !r->failed; i++) {
        size_t from = i;
        char flag = 0;
        struct field f;
        if (format.p[i] != '%' || i + 1 == format.n) {
            tmpl_put(r, b, (struct view){format.p + i, 1});
            continue;
        }
        i++;
        if (i + 1 < format.n && memchr("-_0^#", format.p[i], 5)) flag = format.p[i++];
        const char *parts = compound(format.p[i]);
        if (parts)
            tmpl_put_time(r, b, view_of(parts), unix_s);
        else if (field_of(&c, format.p[i], &f))
            put_field(r, b, f, flag);
        else { /* as it stands; what follows the % may be a longer character */
            tmpl_put(r, b, (struct view){format.p + from, i - from});
            i--;
        }
    }
}
