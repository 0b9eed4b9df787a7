/* What the parts of value_add() share. */
#pragma once

#include "fs/remote/values.h"

struct renderer {
    struct view *view;
    const struct offsets *offsets;
    struct text *out;
    size_t start;   /* length of out when the value began */
    unsigned nodes; /* objects that may still be shown */
};

/* One object, `depth` containers deep. */
void render(struct renderer *r, uint64_t object, unsigned depth);

/* values_builtin.c: numbers and strings. Each adds nothing and returns false if something could
 * not be read. */
bool render_int(struct renderer *r, uint64_t object);
bool render_float(struct renderer *r, uint64_t object);
bool render_complex(struct renderer *r, uint64_t object);
bool render_str(struct renderer *r, uint64_t object);
bool render_bytes(struct renderer *r, uint64_t object);
bool render_bytearray(struct renderer *r, uint64_t object);

/* values_code.c: classes, functions and the like. */
bool render_class(struct renderer *r, uint64_t object);
bool render_function(struct renderer *r, uint64_t object);
bool render_method(struct renderer *r, uint64_t object);
bool render_builtin(struct renderer *r, uint64_t object);
bool render_module(struct renderer *r, uint64_t object);
bool render_code(struct renderer *r, uint64_t object);
bool render_cell(struct renderer *r, uint64_t object);
/* kind: "generator", "coroutine" or "async_generator" */
bool render_generator(struct renderer *r, uint64_t object, const char *kind);

/* values_container.c: brackets and what is in them. */
bool render_list(struct renderer *r, uint64_t object, unsigned depth);
bool render_tuple(struct renderer *r, uint64_t object, unsigned depth);
bool render_set(struct renderer *r, uint64_t object, unsigned depth);
bool render_dict(struct renderer *r, uint64_t object, unsigned depth);
/* " {a=1, b='x'}", or nothing for an instance without attributes. */
void render_attributes(struct renderer *r, uint64_t object);
