#include "agent/breakpoint/location.h"

#include "agent/cpython/code_flags.h"
#include "agent/cpython/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define FULL_MAX 5000 /* bytes of a path and a qualified name */
#define DEPTH_MAX 100 /* of functions in functions */

/* Code objects of the same file, or with the same name. */
struct group {
    PyObject *text; /* that a code object holds */
    long first;     /* of the group; -1: free */
};

struct grouping {
    struct group *groups;
    size_t ngroups; /* a power of two; 0: not made */
    int *next;      /* of each code object, in its group; -1: none */
};

struct location_index {
    const struct codes *codes;
    struct grouping files, names;
    int *ends;        /* of each code object: the last line of it and of what is defined in it */
    unsigned *around; /* of each: the last search in which something in it has the line */
    unsigned searches;
};

/* ---- groups ---- */

static void grouping_free(struct grouping *grouping)
{
    free(grouping->groups);
    free(grouping->next);
}

static struct group *find_group(const struct grouping *grouping, PyObject *text)
{
    for (size_t at = (size_t)PyObject_Hash(text);; at++) {
        struct group *group = &grouping->groups[at & (grouping->ngroups - 1)];
        if (group->first < 0 || group->text == text || PyUnicode_Compare(group->text, text) == 0)
            return group;
    }
}

static bool make_grouping(struct grouping *grouping, const struct codes *codes,
                          enum code_attribute attribute)
{
    size_t ngroups = 16;

    if (grouping->ngroups)
        return true;
    while (ngroups < 2 * codes->count)
        ngroups *= 2;
    grouping->groups = malloc(ngroups * sizeof *grouping->groups);
    grouping->next = malloc((codes->count + 1) * sizeof *grouping->next);
    if (!grouping->groups || !grouping->next)
        return false;
    grouping->ngroups = ngroups;
    for (size_t i = 0; i < ngroups; i++)
        grouping->groups[i] = (struct group){.first = -1};
    for (size_t i = 0; i < codes->count; i++) {
        PyObject *text = codes_peek(codes->all[i].code, attribute);
        struct group *group = find_group(grouping, text);
        grouping->next[i] = (int)group->first;
        *group = (struct group){text, (long)i};
    }
    return true;
}

struct location_index *location_index_new(const struct codes *codes)
{
    struct location_index *index = calloc(1, sizeof *index);
    if (index)
        index->codes = codes;
    return index;
}

void location_index_free(struct location_index *index)
{
    if (!index)
        return;
    grouping_free(&index->files);
    grouping_free(&index->names);
    free(index->ends);
    free(index->around);
    free(index);
}

/* ---- names ---- */

/* Whether one path is the other's end, on whole parts. A relative one may be the
 * shorter one on either side. */
static bool is_end(const char *end, size_t size, const char *path, size_t path_size)
{
    if (size > path_size || memcmp(path + path_size - size, end, size) != 0)
        return false;
    return size == path_size || path[path_size - size - 1] == '/';
}

static bool matches_file(const char *where, PyObject *file)
{
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text text;

    if (!text_of(file, &text, &owner))
        return false;
    size_t size = strlen(where);
    if (text.size > 2 && memcmp(text.bytes, "./", 2) == 0)
        text = (struct ring_text){text.bytes + 2, text.size - 2};
    return is_end(where, size, text.bytes, text.size) ||
           (text.size && text.bytes[0] != '/' && where[0] == '/' &&
            is_end(text.bytes, text.size, where, size));
}

/* What a function is called at most: its file, with dots for slashes and without .py, and its
 * qualified name, from which "<locals>." may be left out. Its size; 0: too long. */
static size_t full_name(const struct codes *codes, long code, bool locals, char out[FULL_MAX])
{
    static const char *const endings[] = {".py", "/__init__"};
    _cleanup_unref_ PyObject *file = codes_get(codes->all[code].code, CODE_FILE);
    _cleanup_unref_ PyObject *name = codes_qualname(codes, code);
    _cleanup_unref_ PyObject *file_owner = NULL, *name_owner = NULL;
    struct ring_text path, qualname;

    if (!text_of(file, &path, &file_owner) || !text_of(name, &qualname, &name_owner) ||
        path.size + qualname.size + 2 > FULL_MAX)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
        if (path.size > strlen(endings[i]) && memcmp(path.bytes + path.size - strlen(endings[i]),
                                                     endings[i], strlen(endings[i])) == 0)
            path.size -= strlen(endings[i]);
    for (size_t i = 0; i < path.size; i++)
        out[i] = path.bytes[i] == '/' ? '.' : path.bytes[i];
    size_t at = path.size;
    out[at++] = '.';
    for (size_t i = 0; i < qualname.size; i++) {
        if (!locals && qualname.size - i > 9 && memcmp(qualname.bytes + i, "<locals>.", 9) == 0) {
            i += 8;
            continue;
        }
        out[at++] = qualname.bytes[i];
    }
    out[at] = '\0';
    return at;
}

static bool matches_full(const char *where, const char *full, size_t size)
{
    size_t where_size = strlen(where);
    return where_size <= size && memcmp(full + size - where_size, where, where_size) == 0 &&
           (where_size == size || full[size - where_size - 1] == '.');
}

/* Whether a code object is of the file that is run as the program. */
static bool is_main(PyObject *code)
{
    PyObject *module = PyImport_AddModule("__main__"); /* borrowed */
    PyObject *globals = module ? PyModule_GetDict(module) : NULL;
    PyObject *path = globals ? PyDict_GetItemString(globals, "__file__") : NULL;
    _cleanup_unref_ PyObject *file = codes_get(code, CODE_FILE), *owner = NULL;
    struct ring_text text;

    PyErr_Clear();
    if (!path)
        return text_of(file, &text, &owner) && text.size && text.bytes[0] == '<';
    return text_of(path, &text, &owner) && matches_file(text.bytes, file);
}

static bool matches_name(const char *where, const struct codes *codes, long i)
{
    static const char prefix[] = "__main__.";
    PyObject *code = codes->all[i].code;
    char full[FULL_MAX];

    if (!(codes_number(code, CODE_FLAGS) & CO_OPTIMIZED))
        return false;
    if (strncmp(where, prefix, sizeof prefix - 1) == 0) {
        if (!is_main(code))
            return false;
        where += sizeof prefix - 1;
    }
    for (int locals = 0; locals < 2; locals++) {
        size_t size = full_name(codes, i, locals, full);
        if (size && matches_full(where, full, size))
            return true;
    }
    return false;
}

/* Whether it is the last part of `where`. */
static bool is_last_part(const char *where, PyObject *name)
{
    const char *dot = strrchr(where, '.');
    bool is = name && PyUnicode_Check(name) &&
              PyUnicode_CompareWithASCIIString(name, dot ? dot + 1 : where) == 0;
    if (is)
        return true;
    _cleanup_unref_ PyObject *owner = NULL; /* not ASCII */
    struct ring_text text;
    return text_of(name, &text, &owner) && text.size == strlen(dot ? dot + 1 : where) &&
           memcmp(text.bytes, dot ? dot + 1 : where, text.size) == 0;
}

bool location_concerns(const struct breakpoint *breakpoint, PyObject *code)
{
    bool line = breakpoint->kind == BREAKPOINT_LINE;
    _cleanup_unref_ PyObject *name = codes_get(code, line ? CODE_FILE : CODE_NAME);
    return line ? matches_file(breakpoint->where, name) : is_last_part(breakpoint->where, name);
}

/* ---- modules of machine code ---- */

/* The path of the source that a module was made from, as far as its own tells it: "/a/b.py" of
 * "/a/b.cpython-313-x86_64-linux-gnu.so", with the suffix that `where` has. False: it isn't machine
 * code, or says nothing of itself. */
static bool compiled_from(PyObject *globals, const char *where, char out[FULL_MAX])
{
    PyObject *path = PyDict_GetItemString(globals, "__file__"); /* borrowed */
    _cleanup_unref_ PyObject *owner = NULL;
    struct ring_text text;

    if (!path || !text_of(path, &text, &owner) || text.size >= FULL_MAX - NAME_MAX)
        return false;
    memcpy(out, text.bytes, text.size);
    out[text.size] = '\0';
    if (PyDict_GetItemString(globals, "__compiled__")) /* Nuitka's */
        return true;
    char *name = strrchr(out, '/') ? strrchr(out, '/') + 1 : out;
    char *dot = strchr(name, '.');
    if (!dot || text.size < 3 || strcmp(out + text.size - 3, ".so") != 0)
        return false;
    const char *suffix = strrchr(where, '.');
    snprintf(dot, NAME_MAX, "%s", suffix ? suffix : "");
    return true;
}

static bool is_compiled_file(const char *where, PyObject *globals)
{
    char path[FULL_MAX];

    if (!compiled_from(globals, where, path))
        return false;
    _cleanup_unref_ PyObject *file = PyUnicode_DecodeFSDefault(path);
    return file && matches_file(where, file);
}

/* Whether the module has the first part of the function's name, and what stands before that may be
 * the module's. */
static bool is_compiled_function(const char *where, PyObject *globals)
{
    char path[FULL_MAX], part[FULL_MAX];

    if (!compiled_from(globals, ".", path))
        return false;
    for (char *c = path; *c; c++)
        *c = *c == '/' ? '.' : *c;
    size_t size = strlen(path);
    size_t ending = size > 1 && path[size - 1] == '.'                 ? 1
                    : size > 3 && strcmp(path + size - 3, ".py") == 0 ? 3
                                                                      : 0;
    path[size -= ending] = '\0';
    for (const char *at = where; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
        int length = (int)strcspn(at, ".");
        snprintf(part, sizeof part, "%.*s", length, at);
        if (!PyDict_GetItemString(globals, part))
            continue;
        snprintf(part, sizeof part, "%.*s", at > where ? (int)(at - where) - 1 : 0, where);
        if (!*part || strcmp(part, "__main__") == 0 || matches_full(part, path, size))
            return true;
    }
    return false;
}

bool location_is_compiled(const struct breakpoint *breakpoint)
{
    PyObject *modules = PyImport_GetModuleDict(), *name, *module; /* borrowed */
    Py_ssize_t at = 0;
    bool found = false;

    while (!found && PyDict_Next(modules, &at, &name, &module)) {
        if (!PyModule_Check(module))
            continue;
        PyObject *globals = PyModule_GetDict(module);
        found = breakpoint->kind == BREAKPOINT_LINE
                    ? is_compiled_file(breakpoint->where, globals)
                    : is_compiled_function(breakpoint->where, globals);
        PyErr_Clear();
    }
    return found;
}

/* ---- gathering ---- */

struct gathering {
    struct breakpoint *const *breakpoints;
    unsigned count;
    PyObject *names; /* a set: the last parts of functions' names */
};

static bool wants_file(void *arg, PyObject *file)
{
    const struct gathering *gathering = arg;

    for (unsigned i = 0; i < gathering->count; i++)
        if (gathering->breakpoints[i]->kind == BREAKPOINT_LINE &&
            matches_file(gathering->breakpoints[i]->where, file))
            return true;
    return false;
}

static bool wants_name(void *arg, PyObject *name)
{
    const struct gathering *gathering = arg;
    return PySet_Contains(gathering->names, name) > 0;
}

void location_gather(struct breakpoint *const *breakpoints, unsigned count, struct codes *out)
{
    _cleanup_unref_ PyObject *names = PySet_New(NULL);
    struct gathering gathering = {breakpoints, count, names};
    struct codes_wanted wanted = {.arg = &gathering};

    for (unsigned i = 0; i < count; i++) {
        const char *dot = strrchr(breakpoints[i]->where, '.');
        if (breakpoints[i]->kind == BREAKPOINT_LINE)
            wanted.file = wants_file;
        if (!names || (breakpoints[i]->kind != BREAKPOINT_FUNCTION &&
                       breakpoints[i]->kind != BREAKPOINT_RETURN))
            continue;
        wanted.name = wants_name;
        _cleanup_unref_ PyObject *name =
            PyUnicode_FromString(dot ? dot + 1 : breakpoints[i]->where);
        if (name)
            PySet_Add(names, name);
    }
    PyErr_Clear();
    codes_gather(out, &wanted);
}

/* ---- lines ---- */

/* The lines of a code object from `line` on. */
struct lines {
    int start;       /* the first one that it has; -1: none */
    int best, later; /* the least one; the same of those behind what leads to it. INT_MAX: none */
    bool led;        /* there is one behind what leads to it */
};

static void read_lines(PyObject *code, int line, struct lines *lines)
{
    _cleanup_unref_ PyObject *all = PyObject_CallMethod(code, "co_lines", NULL);
    PyObject *item;

    *lines = (struct lines){-1, INT_MAX, INT_MAX, false};
    while (all && (item = PyIter_Next(all))) {
        int here = codes_number_in(item, 2);
        Py_DecRef(item);
        if (lines->start < 0)
            lines->start = here >= 0 ? here : (int)codes_number(code, CODE_FIRST_LINE);
        if (here < 0)
            continue;
        lines->led = lines->led || here != lines->start;
        if (here > 0 && here >= line && here < lines->best)
            lines->best = here;
        if (lines->led && here >= line && here < lines->later)
            lines->later = here;
    }
    PyErr_Clear();
}

/* The first line from `line` on at which a code object can be stopped; INT_MAX: none. Where all is
 * on the line that defines it, that is where it starts: for such code newer CPythons tell of no
 * line. From 3.11 on it begins with what is of that line, or, a module's, of line 0: of no
 * interest, unless it comes back to it. */
static int line_from(PyObject *code, int line, enum place_event *event)
{
    struct lines lines;

    read_lines(code, line, &lines);
    bool leads = python.version >= 0x030b;
    int best = leads && lines.led ? lines.later : lines.best;
    bool one = !lines.led && lines.start == codes_number(code, CODE_FIRST_LINE);
    *event = (leads ? best == lines.start : one) ? PLACE_START : PLACE_LINE;
    return best;
}

/* The last line of a code object; 0: it has none. */
static int last_line(PyObject *code)
{
    _cleanup_unref_ PyObject *all = PyObject_CallMethod(code, "co_lines", NULL);
    PyObject *item;
    int last = 0;

    while (all && (item = PyIter_Next(all))) {
        int here = codes_number_in(item, 2);
        last = here > last ? here : last;
        Py_DecRef(item);
    }
    PyErr_Clear();
    return last;
}

/* Finds the line at which each code object ends. False: there is no memory. */
static bool make_ends(struct location_index *index)
{
    const struct codes *codes = index->codes;

    if (index->ends)
        return true;
    index->around = calloc(codes->count + 1, sizeof *index->around);
    index->ends = index->around ? calloc(codes->count + 1, sizeof *index->ends) : NULL;
    if (!index->ends)
        return false;
    for (size_t i = 0; i < codes->count; i++) {
        int end = last_line(codes->all[i].code), depth = 0;
        for (long at = (long)i; at >= 0 && depth < DEPTH_MAX; at = codes->all[at].parent, depth++)
            index->ends[at] = end > index->ends[at] ? end : index->ends[at];
    }
    return true;
}

/* The least line from `line` on of a code object and of what it is in. */
static int line_around(const struct codes *codes, long i, int line)
{
    enum place_event event;
    int best = INT_MAX;

    for (int depth = 0; i >= 0 && depth < DEPTH_MAX; i = codes->all[i].parent, depth++) {
        int found = line_from(codes->all[i].code, line, &event);
        best = found < best ? found : best;
    }
    return best;
}

/* Tells of a code object and of what it is in, as far as they have exactly this line. */
static bool tell(const struct codes *codes, long i, int line, location_found *found, void *arg)
{
    enum place_event event;

    for (int depth = 0; i >= 0 && depth < DEPTH_MAX; i = codes->all[i].parent, depth++)
        if (line_from(codes->all[i].code, line, &event) == line &&
            !found(arg, codes->all[i].code, event, line))
            return false;
    return true;
}

static int begin_of(const struct location_index *index, long i)
{
    return (int)codes_number(index->codes->all[i].code, CODE_FIRST_LINE);
}

static bool contains(const struct location_index *index, long i, int line)
{
    return begin_of(index, i) <= line && line <= index->ends[i];
}

/* Marks what has something in it that contains the line. */
static void mark_around(struct location_index *index, long first, int line)
{
    const struct codes *codes = index->codes;

    index->searches++;
    for (long i = first; i >= 0; i = index->files.next[i]) {
        int depth = 0;
        if (!contains(index, i, line))
            continue;
        for (long at = codes->all[i].parent; at >= 0 && depth < DEPTH_MAX;
             at = codes->all[at].parent, depth++)
            index->around[at] = index->searches;
    }
}

/* What a search in the code of one file has come to. */
struct search {
    int line;
    int best; /* the least one that was told of; INT_MAX: none */
    location_found *found;
    void *arg;
};

static bool tell_from(const struct location_index *index, long i, struct search *search)
{
    int best = line_around(index->codes, i, search->line);

    if (best == INT_MAX)
        return true;
    search->best = best < search->best ? best : search->best;
    return tell(index->codes, i, best, search->found, search->arg);
}

/* Code of one file may come from several texts: of a module that was loaded again, or of exec().
 * So all is told of that contains the line, from the innermost code out: each at the line itself,
 * or at its next one. */
static bool tell_containing(struct location_index *index, long first, struct search *search)
{
    mark_around(index, first, search->line);
    for (long i = first; i >= 0; i = index->files.next[i])
        if (contains(index, i, search->line) && index->around[i] != index->searches &&
            !tell_from(index, i, search))
            return false;
    return true;
}

/* Tells of all code that begins nearest behind the line. */
static bool tell_behind(const struct location_index *index, long first, struct search *search)
{
    int begin = INT_MAX;

    for (long i = first; i >= 0; i = index->files.next[i]) {
        int here = begin_of(index, i);
        begin = here > search->line && here < begin ? here : begin;
    }
    for (long i = first; i >= 0 && begin < INT_MAX; i = index->files.next[i])
        if (begin_of(index, i) == begin && !tell_from(index, i, search))
            return false;
    return true;
}

/* Tells of the code of one file that has a line. */
static bool find_line(struct location_index *index, long first, int line, bool within,
                      location_found *found, void *arg, struct location_told *told)
{
    struct search search = {line, INT_MAX, found, arg};

    bool on = tell_containing(index, first, &search);
    if (search.best == INT_MAX && !within)
        on = tell_behind(index, first, &search);
    told->known = true;
    if (search.best == INT_MAX)
        return on;
    told->files++;
    if (search.best != line)
        told->line = search.best;
    return on;
}

static void find_lines(struct location_index *index, const struct breakpoint *breakpoint,
                       bool within, location_found *found, void *arg, struct location_told *told)
{
    for (size_t i = 0; i < index->files.ngroups; i++) {
        const struct group *group = &index->files.groups[i];
        if (group->first >= 0 && matches_file(breakpoint->where, group->text) &&
            !find_line(index, group->first, (int)breakpoint->line, within, found, arg, told))
            return;
    }
}

static void find_functions(const struct location_index *index, const struct breakpoint *breakpoint,
                           location_found *found, void *arg, struct location_told *told)
{
    enum place_event event = breakpoint->kind == BREAKPOINT_RETURN ? PLACE_RETURN : PLACE_START;

    for (size_t i = 0; i < index->names.ngroups; i++) {
        const struct group *group = &index->names.groups[i];
        if (group->first < 0 || !is_last_part(breakpoint->where, group->text))
            continue;
        for (long at = group->first; at >= 0; at = index->names.next[at]) {
            PyObject *code = index->codes->all[at].code;
            if (!matches_name(breakpoint->where, index->codes, at))
                continue;
            told->known = true;
            if (!found(arg, code, event, 0))
                return;
        }
    }
}

void location_find(struct location_index *index, const struct breakpoint *breakpoint, bool within,
                   location_found *found, void *arg, struct location_told *told)
{
    *told = (struct location_told){0};
    if (breakpoint->kind == BREAKPOINT_LINE) {
        if (make_grouping(&index->files, index->codes, CODE_FILE) && make_ends(index))
            find_lines(index, breakpoint, within, found, arg, told);
    } else if (make_grouping(&index->names, index->codes, CODE_NAME)) {
        find_functions(index, breakpoint, found, arg, told);
    }
}
