#include "agent/cpython/current_task.h"

#include "agent/cpython/look_up.h"
#include "agent/cpython/text.h"

bool current_task_init(struct current_task *self)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed, as is all of the module's */
    PyObject *module = PyDict_GetItemString(modules, "_asyncio");

    if (!module || !PyModule_Check(module))
        return false;
    PyObject *dict = PyModule_GetDict(module);
    PyObject *running = PyDict_GetItemString(dict, "_get_running_loop");
    PyObject *current = PyDict_GetItemString(dict, "current_task");
    PyObject *type = PyDict_GetItemString(dict, "Task");
    if (!current)
        current = PyDict_GetItemString(dict, "_current_tasks");
    if (!running || !PyCFunction_Check(running) || !current || !type || !PyType_Check(type) ||
        !(PyCFunction_Check(current) || PyDict_CheckExact(current)))
        return false;
    self->name = PyObject_GetAttrString(type, "get_name");
    self->coro = PyObject_GetAttrString(type, "get_coro");
    PyErr_Clear();
    if (!self->name || !self->coro) {
        current_task_clear(self);
        return false;
    }
    Py_IncRef(self->running_loop = running);
    Py_IncRef(self->of_loop = current);
    Py_IncRef(self->type = type);
    return true;
}

void current_task_clear(struct current_task *self)
{
    python_clear(&self->running_loop);
    python_clear(&self->of_loop);
    python_clear(&self->name);
    python_clear(&self->coro);
    python_clear(&self->type);
}

PyObject *current_task_find(const struct current_task *self, PyObject *loop)
{
    _cleanup_unref_ PyObject *current = self->of_loop;
    _cleanup_unref_ PyObject *type = self->type;
    PyObject *task;

    Py_IncRef(current); /* a loop's own __hash__ may run anything */
    Py_IncRef(type);
    if (PyCFunction_Check(current)) {
        task = PyObject_CallFunctionObjArgs(current, loop, NULL);
    } else {
        task = PyDict_GetItemWithError(current, loop);
        Py_IncRef(task);
    }
    if (!task || PyObject_TypeCheck(task, (PyTypeObject *)type))
        return task;
    Py_DecRef(task);
    return NULL;
}

PyObject *current_task_name(const struct current_task *self, PyObject *task)
{
    _cleanup_unref_ PyObject *name = PyObject_CallFunctionObjArgs(self->name, task, NULL);
    return name && PyUnicode_Check(name)
               ? PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace")
               : NULL;
}

PyObject *current_task_coro(const struct current_task *self, PyObject *task)
{
    PyTypeObject *const types[] = {looked_up.PyCoro_Type, looked_up.PyGen_Type};
    _cleanup_unref_ PyObject *coro = PyObject_CallFunctionObjArgs(self->coro, task, NULL);
    PyObject *name = NULL;

    for (size_t i = 0; coro && !name && i < 2; i++) {
        if (types[i] && is_exactly(coro, types[i]))
            name = PyObject_GetAttrString(coro, "__qualname__");
    }
    PyErr_Clear();
    return name;
}
