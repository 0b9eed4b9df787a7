/* globals/<module>: what a module binds, `name = value`, one a line.
 *
 * A file bears the name that its module has in sys.modules, but for what can't stand in a file's
 * name: / and what makes it . or .. is escaped as in Python (\x2f, \x2e), control characters are
 * anyway. What has no name then, or too long a one, isn't listed: the table globals has it. */
#include "fs/tree/globals.h"

#include "agent/base/cleanup.h"
#include "fs/remote/frames/locals.h"
#include "fs/remote/moment/imports.h"
#include "fs/remote/objects/values.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAMES_SHOWN_MAX 4096
#define BYTES_SHOWN_MAX (512u << 10) /* no value is begun beyond */
#define NAME_CHARACTERS_MAX 200

#define _cleanup_imports_ _cleanup_(import_list_deinit)

/* ---- names ---- */

/* The name of a module's file. False: it can't have one. */
static bool file_name(const char *module, char name[NAME_MAX + 1])
{
    bool dots = !strcmp(module, ".") || !strcmp(module, "..");
    size_t n = 0;

    for (const char *p = module; *p; p++) {
        bool escapes = *p == '/' || (dots && p == module);
        if (n + (escapes ? 4 : 1) > NAME_MAX)
            return false;
        if (escapes)
            n += (size_t)sprintf(name + n, "\\x%02x", (unsigned char)*p);
        else
            name[n++] = *p;
    }
    name[n] = 0;
    return n > 0;
}

static bool has_file_name(const char *module, const char *name)
{
    char its[NAME_MAX + 1];

    return file_name(module, its) && !strcmp(its, name);
}

static int modules_names(struct file_context *context, struct numbers *out)
{
    _cleanup_imports_ struct import_list list = {0};
    char name[NAME_MAX + 1];

    int r = imports_list(context->target, &list);
    for (size_t i = 0; r == 0 && i < list.n; i++)
        if (file_name(list.items[i].name, name))
            r = numbers_add_word(out, name, NULL);
    return r == -EOPNOTSUPP ? 0 : r;
}

static int modules_have(struct file_context *context, unsigned value)
{
    _cleanup_imports_ struct import_list found = {0};

    int r = imports_find(context->target, has_file_name, context->word, &found);
    return r == -EOPNOTSUPP ? -ENOENT : r;
}

const struct naming modules = {WORD_MODULE, modules_names, modules_have};

/* ---- content ---- */

struct rendering {
    const struct offsets *offsets;
    struct view *view;
    struct text *out;
    unsigned names;
    uint64_t more; /* entries that aren't shown */
};

static int render_global(void *arg, const struct local *global)
{
    struct rendering *r = arg;

    if (r->names == NAMES_SHOWN_MAX || r->out->size > BYTES_SHOWN_MAX) {
        r->more++;
        return 1;
    }
    r->names++;
    if (global->text)
        text_add_escaped(r->out, global->text, strlen(global->text));
    else if (str_decode(r->view, r->offsets, global->name, NAME_CHARACTERS_MAX, r->out) < 0)
        value_add(r->view, r->offsets, global->name, r->out);
    text_puts(r->out, " = ");
    value_add(r->view, r->offsets, global->reference, r->out);
    text_putc(r->out, '\n');
    return 0;
}

static int render_found(void *arg, struct view *view, const struct import *module)
{
    struct rendering *r = arg;
    struct object_class class;
    uint64_t left;

    r->view = view;
    if (object_classify(view, r->offsets, module->object, &class) == 0 &&
        class.kind != OBJECT_MODULE) {
        text_puts(r->out, "... (not a module: ");
        value_add(view, r->offsets, module->object, r->out);
        text_puts(r->out, ")\n");
    }
    int e = globals_iterate(view, r->offsets, module->object, render_global, r, &left);
    if (e < 0 && e != -E2BIG)
        text_puts(r->out, "... (unreadable)\n");
    else if (r->more || left)
        text_printf(r->out, "... (%lu more)\n", r->more + left);
    return 0;
}

static void render_again(void *arg)
{
    struct rendering *r = arg;

    text_clear(r->out);
    r->names = 0;
    r->more = 0;
}

static const struct import_reader reader = {.read = render_found, .again = render_again};

int globals_render(struct file_context *context, struct text *out)
{
    struct rendering rendering = {.offsets = &context->target->runtime.offsets, .out = out};

    int r = imports_read_one(context->target, has_file_name, context->word, &reader, &rendering);
    if (r == 0)
        text_puts(out, "... (no longer in sys.modules)\n");
    if (r == -ENOENT)
        text_printf(&context->why, "sys.modules has no module %s", context->word);
    else if (r < 0)
        snapshot_error(context, r);
    return r < 0 ? r : 0;
}
