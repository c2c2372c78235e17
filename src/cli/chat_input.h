/* chat_input.h - how the lines that somebody types in a chat become a message.
 *
 * A line is a message, unless it ends in a backslash (the next line belongs to it) or opens a block
 * with
 * """ (all lines up to the next """ belong to it). Pure. */
#pragma once

#include "base/str.h"

struct chat_input {
    struct str text;     /* the message so far */
    bool in_block, open; /* between """ and """; more lines are due */
};

void chat_input_deinit(struct chat_input *in);
/* Takes a line without its newline. True: text holds a whole message; the next line begins a new
 * one. */
bool chat_input_add(struct chat_input *in, const char *line);
/* There are no more lines: an unfinished message is whole as it is. */
void chat_input_end(struct chat_input *in);
/* Forgets an unfinished message. */
void chat_input_reset(struct chat_input *in);

/* True when the message is a command such as "/set temp 0.2": name and the rest, both pointing into
 * message. A message that begins with a path ("/etc/hosts is...") is none: a command's name is one
 * word of letters and ?. */
bool chat_input_command(const char *message, struct view *name, const char **rest);
