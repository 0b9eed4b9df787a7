#include "fs/tree/profile_view.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/base/duration.h"
#include "fs/process/exited.h"
#include "fs/process/registry.h"
#include "fs/sampler/profile.h"
#include "fs/tree/jobs.h"

#include <errno.h>
#include <stdio.h>

/* ---- moments ---- */

/* "epoch", "30s": when a mark was set, or so long ago, in whole seconds. False: it is neither. */
static bool moment_of(struct store *store, const char *name, uint64_t now, uint64_t *when)
{
    uint64_t ns;

    if (duration_parse(name, strlen(name), &ns)) {
        *when = now > ns ? (now - ns) / STORE_SLICE * STORE_SLICE : 1;
        return true;
    }
    return store_marked(store, name, when);
}

/* What `last` counts back from: of what isn't sampled any more, its end. */
static uint64_t now_of(struct profile *profile, struct store *store)
{
    struct profile_state state;
    struct store_stats stats;

    store_stats(store, &stats);
    int error = profile_look(profile, &state);
    bool running = !error && state.running;
    profile_state_deinit(&state);
    return running || !stats.last ? monotonic_ns() : stats.last + 1;
}

/* Cuts "FROM..TO". False: it isn't that. */
static bool split_diff(const char *word, char from[NAME_MAX + 1], char to[NAME_MAX + 1])
{
    const char *dots = strstr(word, "..");

    if (!dots || dots == word || !dots[2])
        return false;
    snprintf(from, NAME_MAX + 1, "%.*s", (int)(dots - word), word);
    snprintf(to, NAME_MAX + 1, "%s", dots + 2);
    return true;
}

/* ---- sums ---- */

/* "last" of "<pid>/profile/last/<duration>/folded"; "": directly below profile/. */
static void kind_of(const char *file, char kind[16])
{
    const char *p = strstr(file, "/profile/");
    const char *slash = p ? strchr(p + 9, '/') : NULL;

    snprintf(kind, 16, "%.*s", slash ? (int)(slash - p - 9) : 0, p ? p + 9 : "");
}

struct viewing {
    struct file_context *context;
    char kind[16];
    bool moments;
    enum profile_mode mode;
    bool found; /* the mark, of any process */
    struct sum *sum;
};

static int add_part(struct viewing *viewing, struct store *store, struct store_view view,
                    struct sum_role role)
{
    struct sum part;

    view.mode = viewing->mode;
    view.moments = viewing->moments && !role.before;
    int error = sum_init(&part, viewing->mode);
    if (!error)
        error = store_sum(store, &view, &part);
    if (!error)
        error = sum_merge(viewing->sum, &part, &role);
    sum_deinit(&part);
    return error;
}

/* What was before, scaled to as long a time, and what has been since. */
static int add_diff(struct viewing *viewing, struct store *store, uint64_t now,
                    struct sum_role role)
{
    char from[NAME_MAX + 1], to[NAME_MAX + 1];
    uint64_t begin, middle;

    if (!split_diff(viewing->context->part, from, to) || !moment_of(store, from, now, &begin) ||
        !moment_of(store, to, now, &middle))
        return 0;
    viewing->found = true;
    if (begin >= middle || middle >= now)
        return 0;
    int error = add_part(viewing, store, (struct store_view){.from = middle}, role);
    role.before = true;
    role.factor = (double)(now - middle) / (double)(middle - begin);
    if (!error)
        error = add_part(viewing, store, (struct store_view){.from = begin, .to = middle}, role);
    return error;
}

static int add_store(struct viewing *viewing, struct profile *profile, struct store *store,
                     struct sum_role role)
{
    const char *part = viewing->context->part;
    uint64_t now = now_of(profile, store);
    struct store_view view = {0};

    if (!strcmp(viewing->kind, "diff"))
        return add_diff(viewing, store, now, role);
    if (!strcmp(viewing->kind, "threads"))
        view.tid = (pid_t)strtoul(part, NULL, 10);
    else if (!strcmp(viewing->kind, "last") || !strcmp(viewing->kind, "marks"))
        if (!moment_of(store, part, now, &view.from))
            return 0;
    viewing->found = true;
    return add_part(viewing, store, view, role);
}

static int add_process(struct viewing *viewing, struct process *process, struct sum_role role)
{
    struct store *store = profile_store(process->profile);
    int error = store ? add_store(viewing, process->profile, store, role) : 0;

    store_unref(store);
    return error;
}

/* The mode that files show which name none. */
static enum profile_mode shown_mode(struct process *process)
{
    struct profile_state state;

    int error = profile_look(process->profile, &state);
    profile_state_deinit(&state);
    return error ? MODE_CPU : state.options.shown;
}

/* ---- all of them ---- */

static int list_all(struct file_context *context, struct process_list *list)
{
    size_t n = 0;

    int error = context_processes(context, list);
    if (error)
        return error;
    for (size_t i = 0; i < list->n; i++) {
        if (profile_any(list->items[i]->profile))
            list->items[n++] = list->items[i];
        else
            process_unref(list->items[i]);
    }
    list->n = n;
    return 0;
}

void profile_root(const struct process *process, char name[32])
{
    bool ranked = process->rank >= 0;

    snprintf(name, 32, ranked ? "rank %lld" : "pid %lld",
             (long long)(ranked ? process->rank : process->pid));
}

/* Adds all processes, each below a frame of its own. Where they don't show the same mode, it is
 * that of the first. */
static int add_all(struct viewing *viewing)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int error = list_all(viewing->context, &list);
    if (!error && list.n && strcmp(viewing->kind, "modes"))
        viewing->sum->mode = viewing->mode = shown_mode(list.items[0]);
    for (size_t i = 0; !error && i < list.n; i++) {
        struct process *process = list.items[i];
        char name[32];
        profile_root(process, name);
        struct profile_frame root = {PROFILE_WORD, name, "", 0, 0};
        error = add_process(viewing, process, (struct sum_role){.root = &root});
    }
    return error;
}

/* Adds the processes that this one started, if they were to be sampled too. */
static int add_children(struct viewing *viewing)
{
    _cleanup_(process_list_deinit) struct process_list list = {0}, ended = {0};
    struct process *parent = viewing->context->process;
    struct registry *registry = viewing->context->registry;
    struct profile_state state;

    int error = profile_look(parent->profile, &state);
    profile_state_deinit(&state);
    if (error || !state.started || !state.options.children)
        return error;
    error = registry_list(registry, &list);
    if (!error)
        error = exited_list(registry_exited(registry), monotonic_ns(), &ended);
    for (size_t i = 0; !error && i < list.n + ended.n; i++) {
        struct process *process = i < list.n ? list.items[i] : ended.items[i - list.n];
        if (!profile_is_child(process->profile, parent->profile))
            continue;
        char name[32];
        snprintf(name, sizeof name, "[child %d]", (int)process->pid);
        struct profile_frame root = {PROFILE_WORD, name, "", 0, 0};
        error = add_process(viewing, process, (struct sum_role){.root = &root});
    }
    return error;
}

int profile_view(struct file_context *context, bool moments, struct sum *out)
{
    struct viewing viewing = {.context = context, .moments = moments, .sum = out};

    kind_of(context->file, viewing.kind);
    if (!strcmp(viewing.kind, "modes"))
        viewing.mode = profile_mode_of(context->part, strlen(context->part));
    else if (context->process)
        viewing.mode = shown_mode(context->process);
    int error = sum_init(out, viewing.mode);
    out->compares = !strcmp(viewing.kind, "diff");
    if (!error && context->process)
        error = add_process(&viewing, context->process, (struct sum_role){0});
    if (!error && context->process && strcmp(viewing.kind, "threads"))
        error = add_children(&viewing);
    if (!error && !context->process)
        error = add_all(&viewing);
    if (!error && context->process && !viewing.found &&
        (!strcmp(viewing.kind, "marks") || out->compares)) {
        text_printf(&context->why, "there is no mark %s any more", context->part);
        error = -ENOENT;
    }
    if (error)
        sum_deinit(out);
    return error;
}

/* ---- names ---- */

struct naming_call {
    struct file_context *context;
    struct numbers *out; /* of a listing */
};

/* What has a profile at this place: one process's, or NULL below all/ and jobs/. */
static struct store *store_of(struct file_context *context)
{
    return context->process ? profile_store(context->process->profile) : NULL;
}

static int add_thread(void *arg, pid_t tid, const char *name)
{
    struct naming_call *call = arg;
    char word[16];

    if (call->out) {
        snprintf(word, sizeof word, "%d", (int)tid);
        return numbers_add_word(call->out, word, NULL);
    }
    snprintf(word, sizeof word, "%d", (int)tid);
    return !strcmp(word, call->context->part);
}

static int threads_list(struct file_context *context, struct numbers *out)
{
    struct naming_call call = {.context = context, .out = out};
    struct store *store = store_of(context);

    int error = store ? store_threads(store, add_thread, &call) : 0;
    store_unref(store);
    return error;
}

static int threads_find(struct file_context *context, unsigned value)
{
    struct naming_call call = {.context = context};
    struct store *store = store_of(context);

    bool found = store && store_threads(store, add_thread, &call) == 1;
    store_unref(store);
    return found ? 0 : -ENOENT;
}

static int lasts_list(struct file_context *context, struct numbers *out)
{
    static const char *const some[] = {"10s", "1m", "10m", "1h"};
    int error = 0;

    for (size_t i = 0; !error && i < ARRAY_SIZE(some); i++)
        error = numbers_add_word(out, some[i], NULL);
    return error;
}

static int lasts_find(struct file_context *context, unsigned value)
{
    uint64_t ns;

    return duration_parse(context->part, strlen(context->part), &ns) && ns ? 0 : -ENOENT;
}

static bool has_word(const struct numbers *numbers, const char *word)
{
    for (size_t i = 0; i < numbers->n; i++)
        if (!strcmp(numbers->items[i].word, word))
            return true;
    return false;
}

static int add_mark(void *arg, const char *name, uint64_t when)
{
    struct numbers *out = arg;

    return has_word(out, name) ? 0 : numbers_add_word(out, name, NULL);
}

/* Lists the marks of one process, or of any of them. */
static int marks_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    struct store *store = store_of(context);

    int error = store ? store_marks(store, add_mark, out) : 0;
    store_unref(store);
    if (!context->process)
        error = list_all(context, &list);
    for (size_t i = 0; !error && i < list.n; i++) {
        store = profile_store(list.items[i]->profile);
        error = store ? store_marks(store, add_mark, out) : 0;
        store_unref(store);
    }
    return error;
}

static bool mark_exists(struct file_context *context, const char *name)
{
    _cleanup_(numbers_deinit) struct numbers all = {0};

    return marks_list(context, &all) == 0 && has_word(&all, name);
}

static int marks_find(struct file_context *context, unsigned value)
{
    return mark_exists(context, context->part) ? 0 : -ENOENT;
}

static int modes_list(struct file_context *context, struct numbers *out)
{
    int error = 0;

    for (enum profile_mode mode = 0; !error && mode < MODE_MODES; mode++)
        error = numbers_add_word(out, profile_mode_name(mode), NULL);
    return error;
}

static int modes_find(struct file_context *context, unsigned value)
{
    return profile_mode_of(context->part, strlen(context->part)) < MODE_MODES ? 0 : -ENOENT;
}

/* Lists each mark against the one before it. */
static int diffs_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(numbers_deinit) struct numbers marks = {0};
    char word[2 * STORE_MARK_NAME_MAX + 3];

    int error = marks_list(context, &marks);
    for (size_t i = 1; !error && i < marks.n; i++) {
        snprintf(word, sizeof word, "%s..%s", marks.items[i - 1].word, marks.items[i].word);
        error = numbers_add_word(out, word, NULL);
    }
    return error;
}

static bool is_moment(struct file_context *context, const char *name)
{
    uint64_t ns;

    return (duration_parse(name, strlen(name), &ns) && ns) || mark_exists(context, name);
}

static int diffs_find(struct file_context *context, unsigned value)
{
    char from[NAME_MAX + 1], to[NAME_MAX + 1];

    return split_diff(context->part, from, to) && is_moment(context, from) && is_moment(context, to)
               ? 0
               : -ENOENT;
}

/* ---- source/ ----
 *
 * A file bears as much of its path as tells it from the others, with ! for /. */

struct paths {
    char **items;
    size_t n, alloc;
};

static void paths_deinit(struct paths *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        free(paths->items[i]);
    free(paths->items);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The files that the frames of a sum lie in. */
static int collect_paths(const struct sum *sum, struct paths *paths)
{
    size_t kept = 0;

    for (uint32_t i = 0; i < sum->trie.nframes; i++) {
        struct profile_frame frame = trie_frame_of(&sum->trie, i);
        if (frame.kind != PROFILE_PYTHON || !*frame.file || *frame.file == '<')
            continue;
        if (i && frame.file == trie_frame_of(&sum->trie, i - 1).file)
            continue;
        if (ARRAY_GROW(paths->items, paths->alloc, paths->n + 1) < 0)
            return -ENOMEM;
        paths->items[paths->n] = strdup(frame.file);
        if (!paths->items[paths->n])
            return -ENOMEM;
        paths->n++;
    }
    if (paths->n)
        array_sort(paths->items, paths->n, sizeof *paths->items, by_text);
    for (size_t i = 0; i < paths->n; i++) {
        if (kept && !strcmp(paths->items[kept - 1], paths->items[i]))
            free(paths->items[i]);
        else
            paths->items[kept++] = paths->items[i];
    }
    paths->n = kept;
    return 0;
}

/* Whether a path ends in these last parts of another. */
static bool ends_in(const char *path, const char *end)
{
    size_t size = strlen(path), n = strlen(end);

    return n <= size && !strcmp(path + size - n, end) && (n == size || path[size - n - 1] == '/');
}

/* The last parts of a path that no other one ends in. */
static const char *short_name(const struct paths *paths, const char *path)
{
    for (const char *end = path + strlen(path); end > path; end--) {
        size_t n = 0;
        if (end[-1] != '/')
            continue;
        for (size_t i = 0; *end && i < paths->n; i++)
            n += ends_in(paths->items[i], end);
        if (n == 1)
            return end;
    }
    return path;
}

int profile_each_source(struct file_context *context,
                        int (*each)(void *arg, const char *name, const char *path), void *arg)
{
    _cleanup_(paths_deinit) struct paths paths = {0};
    struct store *store = store_of(context);
    struct sum sum;

    if (!store)
        return 0;
    int error = sum_init(&sum, shown_mode(context->process));
    if (!error)
        error = store_sum(store, &(struct store_view){.mode = sum.mode}, &sum);
    store_unref(store);
    if (!error)
        error = collect_paths(&sum, &paths);
    sum_deinit(&sum);
    for (size_t i = 0; !error && i < paths.n; i++) {
        char name[NAME_MAX + 1];
        const char *part = short_name(&paths, paths.items[i]);
        if (strlen(part) > NAME_MAX)
            continue;
        snprintf(name, sizeof name, "%s", part);
        for (char *p = name; *p; p++)
            *p = *p == '/' ? '!' : *p;
        if (strcmp(name, ".") && strcmp(name, ".."))
            error = each(arg, name, paths.items[i]);
    }
    return error;
}

static int add_source(void *arg, const char *name, const char *path)
{
    return numbers_add_word(arg, name, NULL);
}

static int sources_list(struct file_context *context, struct numbers *out)
{
    return profile_each_source(context, add_source, out);
}

static int is_source(void *arg, const char *name, const char *path) { return !strcmp(name, arg); }

static int sources_find(struct file_context *context, unsigned value)
{
    return profile_each_source(context, is_source, (void *)context->part) == 1 ? 0 : -ENOENT;
}

const struct naming profile_threads = {WORD_PROFILE, threads_list, threads_find};
const struct naming profile_lasts = {WORD_PROFILE, lasts_list, lasts_find};
const struct naming profile_marks = {WORD_PROFILE, marks_list, marks_find};
const struct naming profile_modes = {WORD_PROFILE, modes_list, modes_find};
const struct naming profile_diffs = {WORD_PROFILE, diffs_list, diffs_find};
const struct naming profile_sources = {WORD_PROFILE, sources_list, sources_find};
