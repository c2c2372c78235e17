#include "cli/chat_input.h"

#include <ctype.h>
#include <string.h>

static const char FENCE[] = "\"\"\"";

void chat_input_deinit(struct chat_input *in) {
    str_deinit(&in->text);
}

void chat_input_end(struct chat_input *in) {
    in->in_block = in->open = false;
}

void chat_input_reset(struct chat_input *in) {
    str_clear(&in->text);
    chat_input_end(in);
}

static bool add_to_block(struct chat_input *in, const char *line) {
    const char *end = strstr(line, FENCE);
    str_add(&in->text, line, end ? (size_t)(end - line) : strlen(line));
    if (end) {
        str_addz(&in->text, end + strlen(FENCE));
        chat_input_end(in);
    } else {
        str_addc(&in->text, '\n');
    }
    return end != NULL;
}

bool chat_input_add(struct chat_input *in, const char *line) {
    size_t n = strlen(line);
    if (!in->open) str_clear(&in->text);
    if (in->in_block) return add_to_block(in, line);
    if (!in->open && strncmp(line, FENCE, 3) == 0) {
        in->in_block = in->open = true;
        return line[3] ? add_to_block(in, line + 3) : false;
    }
    in->open = n && line[n - 1] == '\\';
    str_add(&in->text, line, in->open ? n - 1 : n);
    if (in->open) str_addc(&in->text, '\n');
    return !in->open;
}

bool chat_input_command(const char *message, struct view *name, const char **rest) {
    const char *p = message + 1;
    if (message[0] != '/') return false;
    while (isalpha((unsigned char)*p) || *p == '?') p++;
    if (*p && !isspace((unsigned char)*p)) return false;
    *name = (struct view){message + 1, (size_t)(p - message - 1)};
    while (isspace((unsigned char)*p)) p++;
    *rest = p;
    return true;
}
