/* Keys of dicts, through CPython's watchers of dicts (3.12 on): a dict that is watched calls us
 * before it changes, in the thread that changes it, which costs nanoseconds. No code may run there:
 * what is seen goes through the queue of the traps. */
#include "agent/cpython/look_up.h"
#include "agent/cpython/text.h"
#include "agent/watch/trap_queue.h"
#include "agent/watch/watched.h"
#include "agent/wire/proto.h"

#include <errno.h>

/* PyDict_WatchEvent */
enum event {
    EVENT_ADDED,
    EVENT_MODIFIED,
    EVENT_DELETED,
    EVENT_CLONED,
    EVENT_CLEARED,
    EVENT_DEALLOCATED
};

typedef int dict_callback(enum event event, PyObject *dict, PyObject *key, PyObject *new_value);

static struct {
    int (*add)(dict_callback *);     /* PyDict_AddWatcher */
    int (*clear)(int);               /* PyDict_ClearWatcher */
    int (*watch)(int, PyObject *);   /* PyDict_Watch */
    int (*unwatch)(int, PyObject *); /* PyDict_Unwatch */
} api;

static struct {
    bool taken;
    int number;
} watcher;

static bool is_key(PyObject *key, PyObject *watched)
{
    if (key == watched)
        return true;
    if (!key || Py_TYPE(key) != Py_TYPE(watched) ||
        !(is_exactly(key, &PyUnicode_Type) || is_exactly(key, &PyLong_Type)))
        return false;
    return PyObject_RichCompareBool(key, watched, Py_EQ) == 1;
}

static void changed(struct watch *watch, PyObject *new_value)
{
    if (new_value == watch->last)
        return;
    watch->last = new_value;
    if (!trap_push(watch->serial, new_value))
        __atomic_add_fetch(&watch->breakpoint->dropped, 1, __ATOMIC_RELAXED);
    else if (watch->breakpoint->action == BREAKPOINT_STOP)
        trap_queue_wait(false);
}

/* CPython's watcher of dicts. An exception that is set when it is called stays. */
static int on_event(enum event event, PyObject *dict, PyObject *key, PyObject *new_value)
{
    bool one = event == EVENT_ADDED || event == EVENT_MODIFIED || event == EVENT_DELETED;

    for (struct watch *watch = watches; watch; watch = watch->next) {
        if (watch->by != BY_DICT || watch->storage.owner != dict)
            continue;
        if (one && is_key(key, watch->storage.key))
            changed(watch, event == EVENT_DELETED ? NULL : new_value);
        else if (event == EVENT_CLEARED)
            changed(watch, NULL);
        else if (event == EVENT_CLONED && key &&
                 is_exactly(key, &PyDict_Type)) /* all that the other one has */
            changed(watch, PyDict_GetItem(key, watch->storage.key));
    }
    return 0;
}

static int bind(void)
{
    api.add = (int (*)(dict_callback *))looked_up.PyDict_AddWatcher;
    api.clear = (int (*)(int))looked_up.PyDict_ClearWatcher;
    api.watch = (int (*)(int, PyObject *))looked_up.PyDict_Watch;
    api.unwatch = (int (*)(int, PyObject *))looked_up.PyDict_Unwatch;
    return api.add && api.clear && api.watch && api.unwatch && signal_stack_bind() ? 0
                                                                                   : -EOPNOTSUPP;
}

static int take_watcher(void)
{
    if (watcher.taken)
        return 0;
    int number = api.add(on_event);
    if (number < 0) {
        PyErr_Clear();
        return -EOPNOTSUPP;
    }
    watcher.taken = true;
    watcher.number = number;
    return 0;
}

/* Another watch, of that dict or, NULL, of any; NULL: there is none. */
static const struct watch *find_other(const struct watch *watch, const PyObject *dict)
{
    const struct watch *other = watches;
    while (other &&
           (other == watch || other->by != BY_DICT || (dict && other->storage.owner != dict)))
        other = other->next;
    return other;
}

int by_dict_begin(struct interpreter *interpreter, struct watch *watch)
{
    char words[PROTO_WORDS_MAX];

    int r = bind();
    r = r < 0 ? r : trap_queue_make();
    r = r < 0 ? r : watch_thread_begin(words);
    r = r < 0 ? r : take_watcher();
    if (r == 0 && api.watch(watcher.number, watch->storage.owner) < 0)
        r = -EOPNOTSUPP;
    PyErr_Clear();
    if (r < 0)
        return -EOPNOTSUPP;
    watch->by = BY_DICT;
    watch->last = PyDict_GetItemWithError(watch->storage.owner, watch->storage.key);
    PyErr_Clear();
    return 0;
}

void by_dict_end(struct interpreter *interpreter, struct watch *watch)
{
    watch->by = BY_NOTHING;
    if (!find_other(watch, watch->storage.owner))
        api.unwatch(watcher.number, watch->storage.owner);
    if (!find_other(watch, NULL)) {
        api.clear(watcher.number);
        watcher.taken = false;
    }
    PyErr_Clear();
}
