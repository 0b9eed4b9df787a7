#include "fs/remote/frames/children.h"

#include "fs/remote/objects/values.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROXY_MAPPING 0 /* Objects/descrobject.c mappingproxyobject */

/* One walk over what one value holds. */
struct walk {
    const struct children_of *of;
    uint64_t position; /* of the one to come */
    uint64_t from;
    struct text step; /* of the one at hand */
    struct text key;  /* where the step doesn't say it; else empty */

    /* one is looked for: */
    char kind;        /* '.', '[' or '{'; 0: they are visited */
    const char *word; /* the name, or the key */
    uint64_t number;  /* the position */
    uint64_t found;   /* its reference; 0: not yet */

    child_visit *visit;
    void *arg;
};

static bool is_name(const char *text)
{
    if (!*text || isdigit((unsigned char)*text))
        return false;
    while (isalnum((unsigned char)*text) || *text == '_' || (unsigned char)*text >= 0x80)
        text++;
    return !*text;
}

/* ---- the steps to what is held ---- */

/* Whether repr() shows all of a key, and as a literal. */
static bool is_literal(const struct walk *w, uint64_t key)
{
    struct object_class class;
    struct str_data str;
    uint64_t size;

    if (object_classify(w->of->view, w->of->offsets, key, &class) < 0 || !class.exact)
        return false;
    switch (class.kind) {
    case OBJECT_NONE:
    case OBJECT_BOOL:
    case OBJECT_INT:
    case OBJECT_FLOAT: return true;
    case OBJECT_STR:
        return str_read(w->of->view, w->of->offsets, key, &str) == 0 &&
               str.length <= VALUE_STRING_MAX;
    case OBJECT_BYTES:
        return object_size(w->of->view, w->of->offsets, key, &size) && size <= VALUE_STRING_MAX;
    default: return false;
    }
}

static void add_position(struct walk *w)
{
    text_clear(&w->step);
    text_printf(&w->step, "{%lu}", w->position);
}

/* [KEY] */
static void add_key(struct walk *w, uint64_t key)
{
    text_clear(&w->step);
    text_putc(&w->step, '[');
    if (is_literal(w, key))
        value_add(w->of->view, w->of->offsets, key, &w->step);
    if (text_finish(&w->step) == 0 && w->step.size > 1 && w->step.data[1] != '<') {
        text_putc(&w->step, ']');
        return;
    }
    add_position(w);
    if (!w->kind)
        value_add(w->of->view, w->of->offsets, key, &w->key);
}

/* .NAME; the name is a str object, or text. */
static void add_name(struct walk *w, uint64_t name, const char *text)
{
    bool whole = true;

    text_clear(&w->step);
    text_putc(&w->step, '.');
    if (text)
        text_puts(&w->step, text);
    else
        whole = str_decode(w->of->view, w->of->offsets, name, VALUE_STRING_MAX, &w->step) == 0;
    if (text_finish(&w->step) < 0 || (whole && is_name(w->step.data + 1)))
        return;
    if (!w->kind && w->step.size > 1) {
        text_puts(&w->key, w->step.data + 1);
        text_puts(&w->key, whole ? "" : "...");
    }
    add_position(w);
}

/* ---- what is held ---- */

static bool is_wanted(const struct walk *w)
{
    size_t size = strlen(w->word ? w->word : "");

    switch (w->kind) {
    case '{': return w->position == w->number;
    case '.': return !strcmp(w->step.data, w->word - 1);
    default:
        return w->step.size == size + 2 && w->step.data[0] == '[' &&
               !memcmp(w->step.data + 1, w->word, size);
    }
}

/* The step is made only where somebody needs it. */
static bool needs_step(const struct walk *w)
{
    return w->kind ? w->kind != '{' : w->position >= w->from;
}

static int take(struct walk *w, uint64_t reference)
{
    int r = 0;

    if (needs_step(w) && text_finish(&w->step) < 0)
        return -ENOMEM;
    if (!reference || (!w->kind && w->position < w->from)) {
        r = 0;
    } else if (!w->kind) {
        bool has_key = w->key.size && text_finish(&w->key) == 0;
        const struct child child = {w->position, reference, w->step.data,
                                    has_key ? w->key.data : NULL};
        r = w->visit(w->arg, &child);
        text_clear(&w->key);
    } else if (is_wanted(w)) {
        w->found = reference;
        r = 1;
    }
    w->position++;
    return r;
}

static int take_entry(void *arg, uint64_t key, uint64_t value)
{
    struct walk *w = arg;

    if (needs_step(w))
        add_key(w, key);
    return take(w, value);
}

static int take_item(void *arg, uint64_t item)
{
    struct walk *w = arg;

    if (needs_step(w)) {
        text_clear(&w->step);
        text_printf(&w->step, "[%lu]", w->position);
    }
    return take(w, item);
}

static int take_member(void *arg, uint64_t item)
{
    struct walk *w = arg;

    if (needs_step(w))
        add_position(w);
    return take(w, item);
}

static int take_attribute(void *arg, const struct own_attribute *attribute)
{
    struct walk *w = arg;

    if (needs_step(w))
        add_name(w, attribute->key, attribute->key ? NULL : attribute->name);
    return take(w, attribute->value);
}

static int take_local(void *arg, const struct local *local)
{
    struct walk *w = arg;

    if (needs_step(w))
        add_name(w, local->name, local->text);
    return take(w, local->reference);
}

static int take_frame_name(void *arg, const struct local *local)
{
    struct walk *w = arg;

    if (needs_step(w))
        add_name(w, local->name, local->text);
    if (!w->kind && w->position >= w->from && w->step.size && w->step.data[0] == '.') {
        memmove(w->step.data, w->step.data + 1, w->step.size - 1);
        text_truncate(&w->step, w->step.size - 1);
    }
    return take(w, local->reference);
}

static int take_mapping(struct walk *w, uint64_t proxy)
{
    uint64_t mapping;

    if (!object_field(w->of->view, proxy, w->of->offsets->object_size + PROXY_MAPPING, &mapping))
        return -EFAULT;
    return dict_iterate(w->of->view, w->of->offsets, mapping, take_entry, w, NULL);
}

static int take_all(struct walk *w, uint64_t object)
{
    struct view *view = w->of->view;
    const struct offsets *offsets = w->of->offsets;
    struct object_class class;
    uint64_t left;
    int r = object_classify(view, offsets, object, &class);

    if (r < 0)
        return r;
    switch (class.kind) {
    case OBJECT_LIST: r = list_iterate(view, offsets, object, take_item, w, NULL); break;
    case OBJECT_TUPLE: r = tuple_iterate(view, offsets, object, take_item, w, NULL); break;
    case OBJECT_SET:
    case OBJECT_FROZENSET: r = set_iterate(view, offsets, object, take_member, w, NULL); break;
    case OBJECT_DICT:
    case OBJECT_FROZENDICT: r = dict_iterate(view, offsets, object, take_entry, w, NULL); break;
    case OBJECT_MAPPINGPROXY: r = take_mapping(w, object); break;
    case OBJECT_MODULE: return globals_iterate(view, offsets, object, take_local, w, &left);
    case OBJECT_TYPE_OBJECT: return 0;
    default: break;
    }
    return r || class.exact ? r : instance_iterate(view, offsets, object, take_attribute, w);
}

static int walk_over(struct walk *w, uint64_t object)
{
    return object ? take_all(w, object)
                  : locals_iterate(w->of->view, w->of->offsets, w->of->frame, w->of->code,
                                   take_frame_name, w);
}

/* ---- paths ---- */

/* Where what stands between brackets ends; NULL: it doesn't. */
static const char *end_of_key(const char *p)
{
    char quote = 0;

    for (; *p; p++)
        if (quote && *p == '\\' && p[1])
            p++;
        else if (quote)
            quote = *p == quote ? 0 : quote;
        else if (*p == '\'' || *p == '"')
            quote = *p;
        else if (*p == ']')
            return p;
    return NULL;
}

/* Has a str in quotes that repr() doesn't use have the others. */
static void as_repr(char *word)
{
    size_t size = strlen(word);
    char *quote = *word == 'b' ? word + 1 : word;

    if (*quote == '"' && size >= 2 && word[size - 1] == '"' && !strpbrk(word, "'\\"))
        *quote = word[size - 1] = '\'';
}

static bool read_number(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoul(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && errno == 0;
}

/* [N] of a list or tuple from its end. */
static bool from_the_end(const struct walk *w, uint64_t object, char word[CHILD_PATH_MAX])
{
    struct object_class class;
    uint64_t size, back;

    if (*word != '-' || !object || !read_number(word + 1, &back) ||
        object_classify(w->of->view, w->of->offsets, object, &class) < 0 ||
        (class.kind != OBJECT_LIST && class.kind != OBJECT_TUPLE) ||
        !object_size(w->of->view, w->of->offsets, object, &size) || back > size || !back)
        return false;
    snprintf(word, CHILD_PATH_MAX, "%lu", size - back);
    return true;
}

/* Takes a step out of a path, whose first one needs no dot: its kind and its word, which begins
 * with a dot if it is a name. NULL: none is written so. */
static const char *read_step(const char *path, bool first, char *kind, char word[CHILD_PATH_MAX])
{
    const char *end;

    *kind = *path == '[' || *path == '{' ? *path : '.';
    if (*kind == '.') {
        if (!first && *path++ != '.')
            return NULL;
        end = path + strcspn(path, ".[{");
    } else {
        end = *kind == '[' ? end_of_key(++path) : strchr(++path, '}');
    }
    if (!end || end == path || (size_t)(end - path) + 2 > CHILD_PATH_MAX)
        return NULL;
    size_t size = (size_t)(end - path), at = *kind == '.';
    word[0] = '.';
    memcpy(word + at, path, size);
    word[at + size] = 0;
    if (*kind == '.' && !is_name(word + 1))
        return NULL;
    return *kind == '.' ? end : end + 1;
}

/* One step from a value (0: from the frame). */
static int step_from(struct walk *w, char *word, uint64_t object, uint64_t *out)
{
    if (w->kind == '{' && !read_number(word, &w->number))
        return -EINVAL;
    if (w->kind == '[' && !from_the_end(w, object, word))
        as_repr(word);
    w->word = w->kind == '.' ? word + 1 : word;
    int r = walk_over(w, object);
    if (!w->found)
        return r < 0 ? r : -ENOENT;
    *out = w->found;
    return 0;
}

static int find(const struct children_of *of, const char *path, uint64_t *out, const char **at)
{
    char word[CHILD_PATH_MAX];
    uint64_t object = 0;

    *out = 0;
    for (*at = path; **at;) {
        struct walk w = {.of = of};
        const char *next = read_step(*at, *at == path, &w.kind, word);
        int r = next ? step_from(&w, word, object, out) : -EINVAL;
        text_deinit(&w.step);
        if (r < 0)
            return r;
        *at = next;
        object = stackref_object(of->offsets, *out);
        if (!object && **at)
            return -ENOENT; /* an int, which holds nothing */
    }
    return 0;
}

int children_visit(const struct children_of *of, const char *path, uint64_t from,
                   child_visit *visit, void *arg, uint64_t *value, const char **at)
{
    struct walk w = {.of = of, .from = from, .visit = visit, .arg = arg};
    int r = find(of, path, value, at);

    if (r < 0)
        return r;
    uint64_t object = stackref_object(of->offsets, *value);
    if (*path && !object)
        return 0;
    r = walk_over(&w, object);
    text_deinit(&w.step);
    text_deinit(&w.key);
    return r;
}
