/* asyncio's current task, by functions of _asyncio, without which no loop of asyncio runs. They are
 * C's: nothing of the program's runs but the __hash__ of a loop that has one of its own. */
#pragma once

#include "agent/cpython/python.h"

struct current_task {
    PyObject *running_loop; /* a function; NULL: _asyncio hasn't been imported */
    PyObject *of_loop;      /* a function of the loop, or until 3.11 a dict by loop */
    PyObject *name, *coro;  /* Task.get_name, Task.get_coro */
    PyObject *type;         /* Task */
};

/* All functions are called with the GIL of the interpreter that *self was filled in. */

/* Finds them, if the program has imported _asyncio; *self is zero before. Whether it has. No
 * exception is set afterwards. */
bool current_task_init(struct current_task *self);
void current_task_clear(struct current_task *self);
/* The task that a loop runs, in whatever thread: a new reference; NULL: none, or it is no
 * _asyncio.Task. An exception may be set. */
PyObject *current_task_find(const struct current_task *self, PyObject *loop);
/* A task's name in UTF-8, a bytes object, whatever a subclass has made of get_name(). NULL: it
 * can't be told; an exception may be set. */
PyObject *current_task_name(const struct current_task *self, PyObject *task);
/* The qualified name of its coroutine, a str. NULL: it has none that could be told without running
 * code of the program's. No exception is set afterwards. */
PyObject *current_task_coro(const struct current_task *self, PyObject *task);
