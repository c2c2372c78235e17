/* bus_greet.h - how two sides of a bus connection prove who they are. For the files of the bus. */
#pragma once

#include "net/bus_frame.h"

struct bus;

/* Our greeting with a fresh nonce. */
struct bus_greeting bus_greet_own(const struct bus *b);
/* The signature of the dialling or the answering side over both greetings. */
void bus_greet_sign(const struct bus *b, bool dialler, const struct bus_greeting *hello,
                    const struct bus_greeting *welcome, u8 signature[64]);
bool bus_greet_verify(const struct bus *b, bool dialler, const struct bus_greeting *hello,
                      const struct bus_greeting *welcome, const u8 signature[64]);
/* Both have one key: must `a` give way? */
bool bus_greet_is_junior(const struct bus_greeting *a, const struct bus_greeting *b);
/* A process that proved to have our own key. */
void bus_greet_twin(struct bus *b, const struct bus_greeting *other, const char *address);
void bus_greet_note_twin(struct bus *b, const char *address);
