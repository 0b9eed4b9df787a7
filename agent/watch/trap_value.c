#include "agent/watch/trap_value.h"

#include <string.h>

/* The layouts of CPython's cpython/floatobject.h and cpython/longintrepr.h: behind the object's
 * head of 16 bytes come the number of a float, or the size of an int (3.12: how many digits << 3
 * and its sign, 0, 1 for zero or 2; before: how many, negative with the sign) and its digits. */
#define HEAD 16
#define DIGITS (HEAD + 8)
#define DIGIT_BITS 30
#define DIGITS_MAX 2

static uint64_t count_digits(uint64_t size)
{
    if (python.version >= 0x030c)
        return size >> 3;
    return (int64_t)size < 0 ? 0 - size : size;
}

static bool is_negative(uint64_t size)
{
    return python.version >= 0x030c ? (size & 3) == 2 : (int64_t)size < 0;
}

void trap_value_copy(uint64_t address, struct trap_value *out)
{
    const char *object = (const char *)(uintptr_t)address;
    const void *type = NULL;

    *out = (struct trap_value){.address = address};
    if (!object)
        return;
    memcpy(&type, object + HEAD - sizeof type, sizeof type);
    if (type != &PyFloat_Type && type != &PyLong_Type)
        return;
    memcpy(&out->size, object + HEAD, sizeof out->size);
    if (type == &PyLong_Type) {
        uint64_t count = count_digits(out->size);
        if (count > DIGITS_MAX)
            return;
        memcpy(out->digits, object + DIGITS, count * sizeof *out->digits);
    }
    out->type = type;
}

static PyObject *make_number(const struct trap_value *value)
{
    if (value->type == &PyFloat_Type) {
        double number;
        memcpy(&number, &value->size, sizeof number);
        return PyFloat_FromDouble(number);
    }
    long long number = (long long)value->digits[1] << DIGIT_BITS | value->digits[0];
    return PyLong_FromLongLong(is_negative(value->size) ? -number : number);
}

static bool is_for_ever(uint64_t address)
{
    return address == (uint64_t)(uintptr_t)Py_None || address == (uint64_t)(uintptr_t)Py_True ||
           address == (uint64_t)(uintptr_t)Py_False;
}

PyObject *trap_value_object(const struct trap_value *value, bool is_there)
{
    PyObject *object = NULL;

    if (value->type) {
        object = make_number(value);
        PyErr_Clear();
    } else if (is_there || is_for_ever(value->address)) {
        object = (PyObject *)(uintptr_t)value->address;
        Py_IncRef(object);
    }
    return object;
}
