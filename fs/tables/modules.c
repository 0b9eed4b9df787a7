/* The table modules: sys.modules of every interpreter. */
#include "fs/tables/scene.h"

#include "fs/remote/moment/moment.h"
#include "fs/remote/objects/object.h"
#include "schema/schema.h"

#include <errno.h>

#define NAME_CHARACTERS_MAX 1024
#define MODULES_MAX 65536 /* of one interpreter */

struct reading {
    struct view *view;
    const struct offsets *offsets;
    const struct use *use;
    struct rows *rows;
    struct text scratch;
    int64_t interpreter;
    size_t n;
};

/* How many frames a stack has doesn't matter. */
static void plan(const struct use *use, struct plan *plan)
{
    static const struct use shallow = {.bounds[0] = {.bounded = true}};

    plan_stacks(plan, &shallow, -1, 0);
}

/* __file__, of a module: what else may lie in sys.modules keeps it elsewhere, or has none. */
static bool add_file(struct reading *r, uint64_t module)
{
    struct object_class class;
    uint64_t dict, file;

    return object_classify(r->view, r->offsets, module, &class) == 0 &&
           class.kind == OBJECT_MODULE &&
           object_field(r->view, module, r->offsets->module_dict, &dict) &&
           dict_lookup_str(r->view, r->offsets, dict, "__file__", &file) == 0 &&
           str_decode(r->view, r->offsets, file, NAME_CHARACTERS_MAX, &r->scratch) >= 0;
}

static int add_module(void *arg, uint64_t key, uint64_t module)
{
    struct reading *r = arg;

    if (r->n++ == MODULES_MAX)
        return -E2BIG;
    rows_add(r->rows);
    rows_integer(r->rows, MODULES_INTERPRETER, r->interpreter);
    if (use_wants(r->use, MODULES_NAME) &&
        str_decode(r->view, r->offsets, key, NAME_CHARACTERS_MAX, &r->scratch) >= 0)
        rows_take(r->rows, MODULES_NAME, &r->scratch);
    text_clear(&r->scratch);
    if (use_wants(r->use, MODULES_FILE) && add_file(r, module))
        rows_take(r->rows, MODULES_FILE, &r->scratch);
    text_clear(&r->scratch);
    if (use_wants(r->use, MODULES_TYPE) &&
        value_type_name(r->view, r->offsets, module, &r->scratch) == 0)
        rows_take(r->rows, MODULES_TYPE, &r->scratch);
    text_clear(&r->scratch);
    return r->rows->error ? r->rows->error : r->scratch.error;
}

/* What may be missing or wrong is a row as well, without a name. */
static void add_note(struct rows *rows, const char *note)
{
    rows_add(rows);
    rows_text(rows, MODULES_TYPE, note);
}

static int add_interpreter(struct reading *r, uint64_t interp)
{
    uint64_t modules;

    r->n = 0;
    if (!object_field(r->view, interp, r->offsets->interp_modules, &modules))
        return 0;
    int e = dict_iterate(r->view, r->offsets, modules, add_module, r, NULL);
    if (e == -E2BIG)
        add_note(r->rows, "[cut: there are more modules than are read]");
    else if (e == -EFAULT && r->n)
        add_note(r->rows, "[unreadable: the rest of sys.modules]");
    return e == -ENOMEM || e == -EFBIG ? e : 0; /* one that begins or ends has none */
}

static int within(struct scene *scene, const struct moment *moment, const struct lwp_list *lwps,
                  const struct use *use, struct rows *rows)
{
    const struct walk *walk = moment->walk;
    struct reading r = {
        .view = scene->target->view,
        .offsets = &scene->target->runtime.offsets,
        .use = use,
        .rows = rows,
    };
    int e = 0;

    for (size_t i = 0; i < walk->n && e == 0; i++) {
        if (i && walk->stacks[i].interp == walk->stacks[i - 1].interp)
            continue;
        r.interpreter = walk->stacks[i].interp_id;
        e = add_interpreter(&r, walk->stacks[i].interp);
    }
    text_deinit(&r.scratch);
    return e;
}

static int gather(struct scene *scene, const struct use *use, struct rows *rows)
{
    (void)use;
    if (scene->torn)
        add_note(rows, "[torn: some may be missing or wrong]");
    return 0;
}

const struct row_source modules_rows = {.plan = plan, .within = within, .gather = gather};
