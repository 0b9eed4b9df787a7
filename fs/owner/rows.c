#include "fs/owner/rows.h"

#include "agent/base/clock.h"
#include "fs/access/credentials.h"
#include "fs/owner/rings.h"
#include "fs/owner/sql_message.h"
#include "fs/sql/heap.h"
#include "fs/tables/scene.h"

#include <errno.h>
#include <string.h>

/* Followed by the principals, struct access_caller each, and what is asked of tables. */
struct question {
    uint64_t left_ns; /* until the deadline */
    uint32_t nprincipals;
    uint32_t many; /* something stands in front of the rows */
};

static const struct rows_front in_front = {.host = ""}; /* who asks knows what */

size_t rows_question_write(struct wanted *const *wanted, size_t n, const struct looker *looker,
                           const struct stop *stop, char *more, size_t cap)
{
    const struct principals *principals = &looker->principals;
    uint64_t now = monotonic_ns();
    const struct question head = {
        .left_ns = stop->deadline_ns > now ? stop->deadline_ns - now : 0,
        .nprincipals = (uint32_t)principals->n,
        .many = wanted[0]->rows.front != NULL,
    };
    size_t size = principals->n * sizeof *principals->items;

    memcpy(more, &head, sizeof head);
    memcpy(more + sizeof head, principals->items, size);
    size += sizeof head;
    return size + sql_wanted_write(wanted, n, more + size, cap - size);
}

/* Tables with rows of their own. */
struct filling {
    struct wanted *wanted;
    struct wanted **list; /* to each of them */
    size_t n;
};

static void filling_deinit(struct filling *filling)
{
    for (size_t i = 0; filling->wanted && i < filling->n; i++)
        rows_deinit(&filling->wanted[i].rows);
    free(filling->list);
    free(filling->wanted);
}

/* The list of the tables that are wanted. -ENOMEM. */
static int make_list(struct filling *filling)
{
    filling->list = calloc(filling->n, sizeof(struct wanted *));
    for (size_t i = 0; filling->list && i < filling->n; i++)
        filling->list[i] = &filling->wanted[i];
    return filling->list ? 0 : -ENOMEM;
}

/* What is asked, and for whom. */
struct asked {
    struct filling tables;
    struct looker looker;
    struct stop stop;
    struct credentials opener;
};

/* Reads the question. */
static int prepare(const struct owner_request *request, const char *more,
                   const struct interrupt *interrupt, const struct access *access,
                   struct asked *out)
{
    struct filling *tables = &out->tables;
    struct principals *principals = &out->looker.principals;
    struct question head;

    if (request->more < sizeof head)
        return -EPROTO;
    memcpy(&head, more, sizeof head);
    size_t at = sizeof head, size = head.nprincipals * sizeof *principals->items;
    if (head.nprincipals > PRINCIPALS_MAX || size > request->more - at)
        return -EPROTO;
    out->opener = (struct credentials){.refs = 1, .who = request->who, .ns = -1};
    out->looker.access = access;
    principals->opener = &out->opener;
    principals->n = head.nprincipals;
    memcpy(principals->items, more + at, size);
    out->stop = (struct stop){interrupt, monotonic_ns() + head.left_ns};
    at += size;
    tables->n = request->call.value;
    int r = sql_wanted_read(more + at, request->more - at, &tables->wanted, &tables->n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < tables->n; i++) {
        struct wanted *w = &tables->wanted[i];
        rows_init(&w->rows, w->table, w->use.columns, head.many ? &in_front : NULL);
    }
    return make_list(tables);
}

static int add_stream(const struct filling *tables, struct text *out)
{
    struct rows_stream stream = {.wanted = tables->wanted, .n = tables->n};
    char piece[4096];
    size_t n;

    for (size_t i = 0; i < tables->n; i++)
        if (tables->wanted[i].rows.error)
            return tables->wanted[i].rows.error;
    while ((n = rows_stream_take(&stream, piece, sizeof piece)) && !out->cut)
        text_add(out, piece, n);
    return out->cut ? -EFBIG : out->error;
}

/* Whether one is a table of waits: these are told behind the rows. */
static bool has_waits(struct wanted *const *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (wanted[i]->table->rows->between)
            return true;
    return false;
}

static int fill(struct file_context *context, struct recording *recording,
                const struct membership *left, struct asked *asked, struct text *out)
{
    _cleanup_(waits_deinit) struct waits waits = {0};
    struct filling *tables = &asked->tables;
    const bool tells = has_waits(tables->list, tables->n);
    const struct subject of = {
        .process = context->process,
        .target = context->target,
        .recording = recording,
        .looker = &asked->looker,
        .left = left,
        .waits = tells ? &waits : NULL,
    };
    struct heap *heap;

    int r = heap_start();
    if (r == 0)
        r = heap_new(HEAP_MAX, asked->opener.who.fsuid, &heap);
    if (r < 0)
        return r;
    struct heap *before = heap_enter(heap);
    r = scene_fill(&python_tables, &of, tables->list, tables->n, &asked->stop, &context->why);
    if (r == 0)
        r = add_stream(tables, out);
    if (r == 0 && tells)
        r = waits_write(&waits, out);
    filling_deinit(tables);
    *tables = (struct filling){0};
    heap_enter(before);
    heap_unref(heap);
    return r;
}

int rows_question_answer(const struct server *server, struct process *process,
                         const struct owner_request *request, const char *more,
                         const struct interrupt *interrupt, struct owner_answer *answer)
{
    _cleanup_context_ struct file_context context = {0};
    struct recording *recording = NULL;
    struct asked asked = {0};

    int r = prepare(request, more, interrupt, server->access, &asked);
    if (r == 0)
        r = context_init(&context, server, process, &request->call);
    if (r == 0 && process)
        recording = recording_ref(context.recording);
    else if (r == 0) /* it has ended */
        r = recording_new(&recording);
    if (r == 0) {
        context_refresh(&context);
        r = rings_take(request, recording);
    }
    if (r == 0)
        r = fill(&context, recording, process ? NULL : &request->call.membership, &asked,
                 &answer->text);
    recording_unref(recording);
    filling_deinit(&asked.tables);
    answer->why = context.why;
    context.why = TEXT_INIT;
    return answer->error = r;
}

/* ---- what comes of it ---- */

struct answered {
    const char *bytes;
    size_t left;
};

static int take(void *arg, void *out, size_t size)
{
    struct answered *from = arg;

    if (size > from->left)
        return -EPROTO;
    if (size) /* else there need be nothing to copy from or to */
        memcpy(out, from->bytes, size);
    from->bytes += size;
    from->left -= size;
    return 0;
}

static int read_waits(const struct answered *from, struct waits *out)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;

    text_add(&text, from->bytes, from->left);
    if (text.error || !text.size)
        return text.error ? text.error : -EPROTO;
    owner_drop_controls(&text, -1);
    return waits_parse(text.data, text.size, out);
}

int rows_answer_read(const struct owner_answer *answer, struct wanted *const *wanted, size_t n,
                     struct waits *waits)
{
    /* where the rows are read to, before they are believed */
    _cleanup_(filling_deinit) struct filling received = {.wanted = calloc(n, sizeof **wanted),
                                                         .n = n};
    struct answered from = {answer->text.data, answer->text.size};

    int r = received.wanted ? make_list(&received) : -ENOMEM;
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        received.wanted[i].table = wanted[i]->table;
        received.wanted[i].use.columns = wanted[i]->use.columns;
    }
    r = rows_stream_read(take, &from, from.left, received.list, n);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = rows_copy(&wanted[i]->rows, wanted[i]->table, &received.wanted[i].rows);
    if (r == 0 && has_waits(wanted, n))
        return read_waits(&from, waits);
    return r == 0 && from.left ? -EPROTO : r;
}
