/* inspect.h - `skein inspect FILE`: what is in a model file.
 *
 * Reads only the header, the metadata and the tensor directory, also of files that skein can't run.
 * Text that comes from the file is escaped, so that it can't play with the terminal. */
#pragma once

#include "base/str.h"
#include "model/model_file.h"

struct inspect_options {
    bool kv;      /* list all metadata, long arrays shortened */
    bool tensors; /* list all tensors */
    bool json;
};

/* Appends the report, as text or as one JSON object and a newline. */
void inspect_report(const struct model_file *f, const struct inspect_options *o, struct str *out);
