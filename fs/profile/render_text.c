/* The formats that people read, and that grep and awk do. */
#include "fs/profile/render.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <string.h>
#include <inttypes.h>

#define IDLE_SHARE 20        /* a thread that ran for less than one in so many parts is idle */
#define IDLE_PLACES_MAX 3    /* where idle ones wait: so many are told, ... */
#define IDLE_PLACES_SHARE 10 /* ... of no less than one in so many parts */
#define CALLERS_MAX 16       /* of a wait */

static void add_element(struct text *out, const char *s)
{
    for (; *s; s++)
        text_putc(out, *s == ';' ? ':' : *s);
}

void render_frame_folded(const struct profile_frame *frame, struct text *out)
{
    add_element(out, frame->func);
    if (frame->kind == PROFILE_NATIVE) {
        text_puts(out, " [native]");
    } else if (frame->kind == PROFILE_PYTHON && *frame->file) {
        text_puts(out, " (");
        add_element(out, frame->file);
        if (frame->line)
            text_printf(out, ":%d", frame->line);
        text_putc(out, ')');
    }
}

void render_weight(enum profile_mode mode, int64_t weight, struct text *out)
{
    if (!strcmp(profile_mode_unit(mode), "ns"))
        text_printf(out, "%.6f", (double)weight * 1e-9);
    else
        text_printf(out, "%" PRId64, weight);
}

/* ---- folded ---- */

struct line {
    uint32_t node;
    int64_t now, before;
};

static uint64_t change(const struct line *line)
{
    int64_t change = line->now - line->before;

    return change < 0 ? -(uint64_t)change : (uint64_t)change;
}

static int by_change(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    uint64_t m = change(x), n = change(y);

    if (m != n)
        return m > n ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void add_stack(const struct trie *trie, uint32_t node, struct text *out)
{
    uint32_t path[1 << 11], n = 0;

    for (; node && n < ARRAY_SIZE(path); node = trie->nodes[node].parent)
        path[n++] = node;
    while (n) {
        struct profile_frame frame = trie_frame_of(trie, trie->nodes[path[--n]].frame);
        render_frame_folded(&frame, out);
        if (n)
            text_putc(out, ';');
    }
}

static int64_t rounded(int64_t weight, int64_t unit)
{
    return (weight + (weight < 0 ? -unit : unit) / 2) / unit;
}

/* A difference has both counts, as difffolded.pl writes them: flamegraph.pl draws that in two
 * colours. */
int render_folded(const struct sum *sum, struct text *out)
{
    int64_t unit = !strcmp(profile_mode_unit(sum->mode), "ns") ? 1000 : 1;
    _cleanup_free_ struct line *lines = calloc(sum->trie.nnodes, sizeof *lines);
    size_t n = 0;

    if (!lines)
        return -ENOMEM;
    for (size_t i = 0; i < sum->ncells; i++) {
        const struct sum_cell *cell = &sum->cells[i];
        lines[cell->node].now += cell->weight;
        lines[cell->node].before += cell->before;
    }
    for (uint32_t node = 1; node < sum->trie.nnodes; node++) { /* n stays behind node */
        struct line line = {node, rounded(lines[node].now, unit),
                            rounded(lines[node].before, unit)};
        if (line.now || line.before)
            lines[n++] = line;
    }
    if (n)
        array_sort(lines, n, sizeof *lines, by_change);
    for (size_t i = 0; i < n && !out->cut; i++) {
        add_stack(&sum->trie, lines[i].node, out);
        if (sum->compares)
            text_printf(out, " %" PRId64, lines[i].before);
        text_printf(out, " %" PRId64 "\n", lines[i].now);
    }
    return 0;
}

/* ---- functions and lines ---- */

int64_t sum_whole(const struct sum *sum)
{
    int64_t whole = 0;

    for (size_t i = 0; i < sum->ncells; i++)
        whole += sum->cells[i].weight - sum->cells[i].before;
    return whole;
}

static bool is_word(const struct profile_frame *frame, const char *word)
{
    return frame->kind == PROFILE_WORD && !strcmp(frame->func, word);
}

/* Whether such an innermost frame says why a thread waited. One that is ready, and has no
 * processor, waits for nothing that its function could do without. */
static bool is_reason(const struct sum *sum, const struct profile_frame *frame)
{
    static const char *const others[] = {"[other]", "[no stack]", "[preempted]"};
    bool is = (sum->mode == MODE_OFF || sum->mode == MODE_WALL) && frame->kind == PROFILE_WORD &&
              *frame->func == '[';

    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        is = is && !is_word(frame, others[i]);
    return is;
}

static struct profile_frame node_frame(const struct sum *sum, uint32_t node)
{
    return trie_frame_of(&sum->trie, sum->trie.nodes[node].frame);
}

/* Threads that hardly ran. What the others did is told without them. */
struct idle {
    bool *threads; /* by thread */
    bool *awaited; /* by node: for this tasks waited, whatever their thread did */
    size_t n;
    int64_t weight; /* of all of them */
};

static bool is_idle(const struct idle *idle, const struct sum_cell *cell)
{
    return idle && idle->n && idle->threads[cell->thread] && !idle->awaited[cell->node];
}

/* Functions, or lines, of a sum; and what waits in one of them for one reason, which is a place of
 * its own. A place is a node of `trie`: a frame below its root, or a reason below that. */
struct places {
    const struct sum *sum;
    bool by_line;
    struct trie trie;
    uint32_t *of;     /* by frame of the sum: its place */
    uint32_t *self;   /* by node: the place that its own weight is of; 0: it has none */
    uint32_t *inner;  /* by node: where that is: itself, or what it waits in */
    int64_t *weights; /* by node */
};

static void places_deinit(struct places *places)
{
    trie_deinit(&places->trie);
    free(places->of);
    free(places->self);
    free(places->inner);
    free(places->weights);
}

/* A source line belongs to the file, whatever function it is in. */
static int find_place(struct places *places, struct profile_frame frame, uint32_t *place)
{
    uint32_t id;

    if (places->by_line && frame.kind == PROFILE_PYTHON) {
        frame.func = "";
        frame.first_line = 0;
    } else {
        frame.line = 0;
    }
    int error = trie_frame(&places->trie, &frame, &id);
    return error ? error : trie_child(&places->trie, TRIE_ROOT, id, place);
}

/* The innermost frame that is code, of a node that says why it waits; else the one outside of it.
 */
static uint32_t what_waits(const struct sum *sum, uint32_t node)
{
    uint32_t outside = sum->trie.nodes[node].parent, at = outside;

    while (at && node_frame(sum, at).kind == PROFILE_WORD)
        at = sum->trie.nodes[at].parent;
    return at ? at : outside ? outside : node;
}

static int find_self(struct places *places, uint32_t node)
{
    const struct sum *sum = places->sum;
    struct profile_frame frame = node_frame(sum, node);
    uint32_t inner = is_reason(sum, &frame) ? what_waits(sum, node) : node, reason;

    places->inner[node] = inner;
    places->self[node] = places->of[sum->trie.nodes[inner].frame];
    if (inner == node || places->by_line)
        return 0;
    int error = trie_frame(&places->trie, &frame, &reason);
    if (!error)
        error = trie_child(&places->trie, places->self[node], reason, &places->self[node]);
    return error;
}

/* idle: NULL, or whose cells are left out; only: theirs alone are taken. -ENOMEM. */
static int places_init(struct places *places, const struct sum *sum, bool by_line,
                       const struct idle *idle, bool only)
{
    const struct trie *trie = &sum->trie;

    *places = (struct places){.sum = sum,
                              .by_line = by_line,
                              .of = calloc(trie->nframes + 1, sizeof *places->of),
                              .self = calloc(trie->nnodes, sizeof *places->self),
                              .inner = calloc(trie->nnodes, sizeof *places->inner),
                              .weights = calloc(trie->nnodes, sizeof *places->weights)};
    int error = trie_init(&places->trie, 0, 0);
    if (!places->of || !places->self || !places->inner || !places->weights)
        error = -ENOMEM;
    for (uint32_t i = 0; !error && i < trie->nframes; i++)
        error = find_place(places, trie_frame_of(trie, i), &places->of[i]);
    for (size_t i = 0; !error && i < sum->ncells; i++) {
        const struct sum_cell *cell = &sum->cells[i];
        if (is_idle(idle, cell) == only)
            places->weights[cell->node] += cell->weight - cell->before;
    }
    for (uint32_t node = 1; !error && node < trie->nnodes; node++)
        if (places->weights[node])
            error = find_self(places, node);
    if (error)
        places_deinit(places);
    return error;
}

static int64_t size(int64_t weight) { return weight < 0 ? -weight : weight; }

static int by_self(const void *a, const void *b)
{
    const struct place_sum *x = a, *y = b;

    if (x->self != y->self && size(x->self) != size(y->self))
        return size(x->self) > size(y->self) ? -1 : 1;
    if (x->total != y->total && size(x->total) != size(y->total))
        return size(x->total) > size(y->total) ? -1 : 1;
    int order = strcmp(x->frame.file, y->frame.file);
    if (!order)
        order = x->frame.line - y->frame.line;
    if (!order)
        order = strcmp(x->frame.func, y->frame.func);
    return order ? order : strcmp(x->reason, y->reason);
}

/* Names the places by frames of the sum that have them: the names live as long as the sum. */
static void name_places(const struct places *places, struct place_sum *sums)
{
    const struct sum *sum = places->sum;

    for (uint32_t i = 0; i < sum->trie.nframes; i++) {
        struct profile_frame *frame = &sums[places->of[i]].frame;
        *frame = trie_frame_of(&sum->trie, i);
        if (!places->by_line || frame->kind != PROFILE_PYTHON)
            frame->line = 0;
    }
    for (uint32_t node = 1; node < sum->trie.nnodes; node++) {
        uint32_t place = places->self[node];
        uint32_t function = place ? places->trie.nodes[place].parent : TRIE_ROOT;
        if (function == TRIE_ROOT)
            continue;
        sums[place].frame = sums[function].frame;
        sums[place].reason = node_frame(sum, node).func;
    }
}

/* What each has, the largest first. -ENOMEM. */
static int places_sum(const struct places *places, struct place_sum **out, size_t *n)
{
    const struct trie *trie = &places->sum->trie;
    struct place_sum *sums = calloc(places->trie.nnodes, sizeof *sums);
    _cleanup_free_ uint32_t *seen = calloc(places->trie.nnodes, sizeof *seen);

    if (!sums || !seen) {
        free(sums);
        return -ENOMEM;
    }
    for (uint32_t place = 0; place < places->trie.nnodes; place++)
        sums[place] =
            (struct place_sum){.frame = {.func = "", .file = ""}, .reason = "", .place = place};
    name_places(places, sums);
    for (uint32_t node = 1; node < trie->nnodes; node++) {
        int64_t weight = places->weights[node];
        uint32_t place = places->self[node];
        if (!weight)
            continue;
        sums[place].self += weight;
        sums[place].total += weight;
        seen[place] = node;
        for (uint32_t at = node; at; at = trie->nodes[at].parent) {
            place = places->of[trie->nodes[at].frame];
            if (seen[place] != node)
                sums[place].total += weight;
            seen[place] = node;
        }
    }
    *n = places->trie.nnodes - 1; /* the root is none */
    memmove(sums, sums + 1, *n * sizeof *sums);
    if (*n)
        array_sort(sums, *n, sizeof *sums, by_self);
    *out = sums;
    return 0;
}

int sum_lines(const struct sum *sum, struct place_sum **out, size_t *n)
{
    struct places places;

    int error = places_init(&places, sum, true, NULL, false);
    if (error)
        return error;
    error = places_sum(&places, out, n);
    places_deinit(&places);
    return error;
}

/* ---- threads that hardly ran ---- */

/* Adds the weight of a cell to what its thread ran, or waited; who waits for the GIL has something
 * to do, and who waits for a processor may, too. */
static void add_time(const struct sum *sum, const struct sum_cell *cell, int64_t *ran,
                     int64_t *waited)
{
    struct profile_frame frame = node_frame(sum, cell->node);

    if (is_word(&frame, "[preempted]"))
        return;
    if (is_reason(sum, &frame) && !is_word(&frame, "[gil]"))
        waited[cell->thread] += cell->weight;
    else
        ran[cell->thread] += cell->weight;
}

/* The main thread is none of them: what it waits for the program waits for. */
static void find_threads(const struct sum *sum, const int64_t *ran, const int64_t *waited,
                         struct idle *idle)
{
    bool others = false;

    for (size_t i = 0; i < sum->nthreads; i++) {
        const struct sum_thread *thread = &sum->threads[i];
        idle->threads[i] = thread->tid && thread->tid != thread->pid && waited[i] > 0 &&
                           ran[i] < waited[i] / IDLE_SHARE;
        others |= !idle->threads[i] && ran[i] + waited[i] > 0;
        idle->n += idle->threads[i];
        idle->weight += idle->threads[i] ? ran[i] + waited[i] : 0;
    }
    if (!others) /* then it is they who are asked for */
        idle->n = 0;
}

/* Only a sum of wall time says what else threads did. -ENOMEM. */
static int idle_init(struct idle *idle, const struct sum *sum)
{
    _cleanup_free_ int64_t *ran = calloc(sum->nthreads + 1, sizeof *ran);
    _cleanup_free_ int64_t *waited = calloc(sum->nthreads + 1, sizeof *waited);

    *idle = (struct idle){.threads = calloc(sum->nthreads + 1, sizeof *idle->threads),
                          .awaited = calloc(sum->trie.nnodes, sizeof *idle->awaited)};
    if (!ran || !waited || !idle->threads || !idle->awaited)
        return -ENOMEM;
    if (sum->mode != MODE_WALL || sum->compares)
        return 0;
    for (uint32_t node = 1; node < sum->trie.nnodes; node++) {
        struct profile_frame frame = node_frame(sum, node);
        idle->awaited[node] = idle->awaited[sum->trie.nodes[node].parent] ||
                              is_word(&frame, "[awaiting]");
    }
    for (size_t i = 0; i < sum->ncells; i++) {
        const struct sum_cell *cell = &sum->cells[i];
        if (cell->node && !idle->awaited[cell->node])
            add_time(sum, cell, ran, waited);
    }
    find_threads(sum, ran, waited, idle);
    return 0;
}

static void idle_deinit(struct idle *idle)
{
    free(idle->threads);
    free(idle->awaited);
}

/* ---- who called ---- */

/* Stacks that end in one place: a frame of each, that goes outwards with the others. */
struct callers {
    const struct places *places;
    struct caller {
        uint32_t node;
        int64_t weight;
    } * items;
    size_t n;
    int64_t *through;       /* by place; 0 but while they are counted */
    uint32_t *first, *next; /* by place and by node: the nodes whose weight is of the place */
};

static void callers_deinit(struct callers *callers)
{
    free(callers->items);
    free(callers->through);
    free(callers->first);
    free(callers->next);
}

/* -ENOMEM. */
static int callers_init(struct callers *callers, const struct places *places)
{
    size_t nodes = places->sum->trie.nnodes, n = places->trie.nnodes;

    *callers = (struct callers){.places = places,
                                .items = calloc(nodes, sizeof *callers->items),
                                .through = calloc(n, sizeof *callers->through),
                                .first = calloc(n, sizeof *callers->first),
                                .next = calloc(nodes, sizeof *callers->next)};
    if (!callers->items || !callers->through || !callers->first || !callers->next)
        return -ENOMEM;
    for (uint32_t node = 1; node < nodes; node++) {
        callers->next[node] = callers->first[places->self[node]];
        callers->first[places->self[node]] = node;
    }
    return 0;
}

static uint32_t place_of(const struct places *places, uint32_t node)
{
    return places->of[places->sum->trie.nodes[node].frame];
}

/* Has each sample go on to its caller; those stay that come to the same place as most. Returns what
 * these weigh. */
static int64_t go_out(struct callers *callers)
{
    const struct places *places = callers->places;
    uint32_t most = 0;
    size_t n = 0;

    for (size_t i = 0; i < callers->n; i++) {
        struct caller *caller = &callers->items[i];
        caller->node = places->sum->trie.nodes[caller->node].parent;
        if (!caller->node)
            continue;
        uint32_t place = place_of(places, caller->node);
        callers->through[place] += caller->weight;
        if (!most || callers->through[place] > callers->through[most])
            most = place;
    }
    int64_t weight = most ? callers->through[most] : 0;
    for (size_t i = 0; i < callers->n; i++) {
        const struct caller *caller = &callers->items[i];
        uint32_t place = caller->node ? place_of(places, caller->node) : 0;
        callers->through[place] = 0;
        if (place && place == most)
            callers->items[n++] = *caller;
    }
    callers->n = n;
    return weight;
}

/* " < get < next": who called it, as far as most of what it has came by one way. */
static void add_callers(struct callers *callers, const struct place_sum *place, struct text *out)
{
    const struct places *places = callers->places;
    uint32_t last = places->trie.nodes[place->place].parent;

    callers->n = 0;
    for (uint32_t node = callers->first[place->place]; node; node = callers->next[node])
        callers->items[callers->n++] = (struct caller){places->inner[node], places->weights[node]};
    for (size_t names = 0; go_out(callers) > place->self / 2;) {
        uint32_t node = callers->items[0].node;
        if (place_of(places, node) == last) /* it calls itself */
            continue;
        last = place_of(places, node);
        text_printf(out, " < %s", names < CALLERS_MAX ? node_frame(places->sum, node).func : "...");
        if (names++ == CALLERS_MAX)
            break;
    }
}

/* ---- top ---- */

static double percent(int64_t part, int64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* The weight that shares are of: of a difference, what there was before. */
static int64_t reference(const struct sum *sum, const struct idle *idle)
{
    int64_t whole = 0;

    for (size_t i = 0; i < sum->ncells; i++)
        if (!is_idle(idle, &sum->cells[i]))
            whole += sum->compares ? sum->cells[i].before : sum->cells[i].weight;
    return whole;
}

static void add_weight(enum profile_mode mode, int64_t weight, struct text *out)
{
    text_putc(out, ' ');
    render_weight(mode, weight, out);
}

/* "wait /usr/lib/python3.11/threading.py:323 [futex] < get < run" */
static void add_place(struct callers *callers, const struct place_sum *place, struct text *out)
{
    const struct sum *sum = callers->places->sum;

    text_printf(out, " %s", place->frame.func);
    if (*place->frame.file)
        text_printf(out, " %s", place->frame.file);
    if (place->frame.first_line)
        text_printf(out, ":%d", place->frame.first_line);
    if (*place->reason)
        text_printf(out, " %s", place->reason);
    if (*place->reason && !sum->compares)
        add_callers(callers, place, out);
    text_putc(out, '\n');
}

/* A line for each. only: of idle threads, the first ones. -ENOMEM. */
static int add_places(const struct sum *sum, const struct idle *idle, bool only, struct text *out)
{
    _cleanup_free_ struct place_sum *sums = NULL;
    int64_t whole = reference(sum, idle);
    struct callers callers = {0};
    struct places places;
    size_t n = 0;

    int error = places_init(&places, sum, false, idle, only);
    if (error)
        return error;
    error = callers_init(&callers, &places);
    if (!error)
        error = places_sum(&places, &sums, &n);
    for (size_t i = 0; i < n && !out->cut; i++) {
        const struct place_sum *place = &sums[i];
        if (only && (i == IDLE_PLACES_MAX || place->self < idle->weight / IDLE_PLACES_SHARE))
            break;
        if (!place->self && !place->total)
            break;
        if (only && !*place->reason)
            continue;
        if (only)
            text_puts(out, "#");
        else
            text_printf(out, "%.2f %.2f", percent(place->self, whole),
                        percent(place->total, whole));
        add_weight(sum->mode, place->self, out);
        if (!only)
            add_weight(sum->mode, place->total, out);
        add_place(&callers, place, out);
    }
    callers_deinit(&callers);
    places_deinit(&places);
    return error;
}

int render_top(const struct sum *sum, struct text *out)
{
    struct idle idle;

    int error = idle_init(&idle, sum);
    text_puts(out, "self% total% self total function place\n");
    if (!error && idle.n) {
        text_printf(out, "# without %zu thread%s that hardly ran:", idle.n, idle.n == 1 ? "" : "s");
        add_weight(sum->mode, idle.weight, out);
        text_putc(out, '\n');
        error = add_places(sum, &idle, true, out);
    }
    if (!error)
        error = add_places(sum, &idle, false, out);
    idle_deinit(&idle);
    return error;
}

int render_lines(const struct sum *sum, struct text *out)
{
    struct place_sum *places;
    size_t n;

    int error = sum_lines(sum, &places, &n);
    if (error)
        return error;
    for (size_t i = 0; i < n && !out->cut; i++) {
        const struct place_sum *place = &places[i];
        if (place->frame.kind != PROFILE_PYTHON || !*place->frame.file ||
            (!place->self && !place->total))
            continue;
        text_printf(out, "%s:%d", place->frame.file, place->frame.line);
        add_weight(sum->mode, place->self, out);
        add_weight(sum->mode, place->total, out);
        text_putc(out, '\n');
    }
    free(places);
    return 0;
}
