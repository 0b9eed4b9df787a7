/* Prints one row of offsets_table.h: the layout of the CPython whose headers it is compiled with.
 *
 *   gcc -I INCLUDE -I INCLUDE/internal -I . agent/cpython/offsets_generate.c && ./a.out >> row
 *
 * With -DPy_GIL_DISABLED, which is what the pyconfig.h of a free-threaded build adds, it is that of
 * such a build.
 *
 * INCLUDE is a python3.X include directory. agent/cpython/offsets_update does so for
 * every interpreter it is given. */
#define Py_BUILD_CORE 1
#include <Python.h>

#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define V PY_VERSION_HEX
#include "internal/pycore_gil.h"
#include "internal/pycore_pystate.h"
#if V >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#endif
#if V >= 0x030b0000
#include "internal/pycore_code.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#endif
#if V >= 0x030e0000
#include "internal/pycore_interpframe_structs.h"
#endif
#if V < 0x030b0000
#include "longintrepr.h"
#else
#include "cpython/longintrepr.h"
#endif

#include "agent/cpython/offsets.h"

#define O(type, member) ((int32_t)offsetof(type, member))

#if V < 0x030b0000
/* Objects/dict-common.h, which is not installed */
struct keys {
    Py_ssize_t refcnt, size;
    void *lookup;
    Py_ssize_t usable, nentries;
    char indices[];
};
#else
typedef struct _dictkeysobject keys_type;
#endif

static void runtime_and_threads(struct offsets *o)
{
    o->rt_interpreters_head = O(_PyRuntimeState, interpreters.head);
    o->interp_next = O(PyInterpreterState, next);
    o->interp_id = O(PyInterpreterState, id);
    o->interp_sysdict = O(PyInterpreterState, sysdict);
#if V >= 0x03090000 /* the collector is the runtime's before */
    o->interp_gc_collecting = O(PyInterpreterState, gc.collecting);
#endif
    o->gil_last_holder = O(struct _gil_runtime_state, last_holder);
    o->gil_locked = O(struct _gil_runtime_state, locked);
    o->gil_size = sizeof(struct _gil_runtime_state);
#ifdef Py_GIL_DISABLED
    o->gil_enabled = O(struct _gil_runtime_state, enabled);
#endif
#if V < 0x030c0000
    o->rt_gil = O(_PyRuntimeState, ceval.gil);
    o->interp_modules = O(PyInterpreterState, modules);
#else
    o->interp_gil = O(PyInterpreterState, ceval.gil);
    o->interp_modules = O(PyInterpreterState, imports.modules);
#endif
#if V < 0x030b0000
    o->interp_threads_head = O(PyInterpreterState, tstate_head);
#else
    o->interp_threads_head = O(PyInterpreterState, threads.head);
#endif
#if V >= 0x030e0000
    o->interp_code_generation = O(PyInterpreterState, _code_object_generation);
#endif
#if V >= 0x030f0000
    o->interp_gc_frame = O(PyInterpreterState, gc.frame);
#endif

    o->tstate_size = sizeof(PyThreadState);
    o->tstate_next = O(PyThreadState, next);
    o->tstate_interp = O(PyThreadState, interp);
    o->tstate_thread_id = O(PyThreadState, thread_id);
    o->tstate_id = O(PyThreadState, id);
    o->tstate_exc_info = O(PyThreadState, exc_info);
#if V < 0x030b0000
    o->tstate_frame = O(PyThreadState, frame);
#elif V >= 0x030d0000
    o->tstate_frame = O(PyThreadState, current_frame);
#endif
#if V >= 0x030b0000
    o->tstate_native_thread_id = O(PyThreadState, native_thread_id);
    o->tstate_datastack_chunk = O(PyThreadState, datastack_chunk);
    o->tstate_datastack_top = O(PyThreadState, datastack_top);
    o->chunk_previous = O(_PyStackChunk, previous);
    o->chunk_data = O(_PyStackChunk, data);
#endif
#if V >= 0x030c0000
    o->tstate_current_exception = O(PyThreadState, current_exception);
#else
    o->tstate_current_exception = O(PyThreadState, curexc_value);
#endif
#if V >= 0x030f0000 /* in 3.14 a frame knows its line there, too */
    o->tstate_executor = O(PyThreadState, current_executor);
#endif
#if V >= 0x030a0000 && V < 0x030d0000
    o->tstate_cframe = O(PyThreadState, cframe);
#if V < 0x030b0000
    o->cframe_size = sizeof(CFrame);
#else
    o->cframe_size = sizeof(_PyCFrame);
    o->cframe_current_frame = O(_PyCFrame, current_frame);
#endif
#endif
}

static void frames(struct offsets *o)
{
#if V < 0x030b0000
    o->frame_previous = O(PyFrameObject, f_back);
    o->frame_code = O(PyFrameObject, f_code);
    o->frame_lasti = O(PyFrameObject, f_lasti);
    o->frame_localsplus = O(PyFrameObject, f_localsplus);
    o->frame_globals = O(PyFrameObject, f_globals);
    o->frame_iblock = O(PyFrameObject, f_iblock);
    o->frame_blockstack = O(PyFrameObject, f_blockstack);
    o->frame_locals = O(PyFrameObject, f_locals);
#if V < 0x030a0000
    o->frame_stacktop = O(PyFrameObject, f_stacktop);
    o->frame_state = O(PyFrameObject, f_executing);
#else
    o->frame_stacktop = O(PyFrameObject, f_stackdepth);
    o->frame_state = O(PyFrameObject, f_state);
#endif
#else
    o->frame_previous = O(_PyInterpreterFrame, previous);
    o->frame_owner = O(_PyInterpreterFrame, owner);
    o->frame_localsplus = O(_PyInterpreterFrame, localsplus);
    o->frame_globals = O(_PyInterpreterFrame, f_globals);
    o->frame_locals = O(_PyInterpreterFrame, f_locals);
#if V < 0x030d0000
    o->frame_code = O(_PyInterpreterFrame, f_code);
    o->frame_instr = O(_PyInterpreterFrame, prev_instr);
#else
    o->frame_code = O(_PyInterpreterFrame, f_executable);
    o->frame_instr = O(_PyInterpreterFrame, instr_ptr);
#endif
#if V < 0x030c0000
    o->frame_func = O(_PyInterpreterFrame, f_func);
    o->frame_is_entry = O(_PyInterpreterFrame, is_entry);
#else
    o->frame_func = O(_PyInterpreterFrame, f_funcobj);
#endif
#if V < 0x030e0000
    o->frame_stacktop = O(_PyInterpreterFrame, stacktop);
#else
    o->frame_stacktop = O(_PyInterpreterFrame, stackpointer);
#ifdef Py_GIL_DISABLED
    o->frame_tlbc_index = O(_PyInterpreterFrame, tlbc_index);
#endif
#endif
#endif
}

static void code(struct offsets *o)
{
    o->code_size = sizeof(PyCodeObject);
    o->code_filename = O(PyCodeObject, co_filename);
    o->code_name = O(PyCodeObject, co_name);
    o->code_firstlineno = O(PyCodeObject, co_firstlineno);
    o->code_argcount = O(PyCodeObject, co_argcount);
    o->code_kwonlyargcount = O(PyCodeObject, co_kwonlyargcount);
    o->code_flags = O(PyCodeObject, co_flags);
    o->code_names = O(PyCodeObject, co_names);
    o->code_stacksize = O(PyCodeObject, co_stacksize);
    o->code_nlocals = O(PyCodeObject, co_nlocals);
#if V < 0x030a0000
    o->code_linetable = O(PyCodeObject, co_lnotab);
#else
    o->code_linetable = O(PyCodeObject, co_linetable);
#endif
#if V < 0x030b0000
    o->code_varnames = O(PyCodeObject, co_varnames);
    o->code_cellvars = O(PyCodeObject, co_cellvars);
    o->code_freevars = O(PyCodeObject, co_freevars);
    o->code_bytecode = O(PyCodeObject, co_code);
#else
    o->code_qualname = O(PyCodeObject, co_qualname);
    o->code_nlocalsplus = O(PyCodeObject, co_nlocalsplus);
    o->code_localsplusnames = O(PyCodeObject, co_localsplusnames);
    o->code_localspluskinds = O(PyCodeObject, co_localspluskinds);
    o->code_adaptive = O(PyCodeObject, co_code_adaptive);
    o->code_exceptiontable = O(PyCodeObject, co_exceptiontable);
#endif
#if V >= 0x030c0000
    o->code_version = O(PyCodeObject, co_version);
#endif
#if V >= 0x030e0000 && defined Py_GIL_DISABLED
    o->code_tlbc = O(PyCodeObject, co_tlbc);
#endif
}

static void generators(struct offsets *o)
{
    o->gen_name = O(PyGenObject, gi_name);
    o->gen_qualname = O(PyGenObject, gi_qualname);
#if V < 0x030b0000
    o->gen_frame = O(PyGenObject, gi_frame);
#else
    o->gen_iframe = O(PyGenObject, gi_iframe);
    o->gen_frame_state = O(PyGenObject, gi_frame_state);
#endif
#if V < 0x030a0000
    o->gen_running = O(PyGenObject, gi_running);
#endif
}

/* A bit-field has no offset: the lowest bit that it sets has. */
#define STATE_BIT(field)                   \
 __extension__({                           \
PyASCIIObject probe;                        \
uint32_t state;                             \
memset(&probe, 0, sizeof probe);            \
probe.state.field = 1;                      \
memcpy(&state, &probe.state, sizeof state); \
__builtin_ctz(state);                       \
 })

static void objects(struct offsets *o)
{
    o->object_type = O(PyObject, ob_type);
    o->object_size = sizeof(PyObject);
    o->weakref_object = O(PyWeakReference, wr_object);
#if V >= 0x030d0000
    o->managed_dict = MANAGED_DICT_OFFSET;
#elif V >= 0x030b0000
    o->managed_dict = -3 * (int32_t)sizeof(void *);
#endif
    o->type_size = sizeof(PyTypeObject);
    o->type_name = O(PyTypeObject, tp_name);
    o->type_basicsize = O(PyTypeObject, tp_basicsize);
    o->type_itemsize = O(PyTypeObject, tp_itemsize);
    o->type_dictoffset = O(PyTypeObject, tp_dictoffset);
    o->type_weaklistoffset = O(PyTypeObject, tp_weaklistoffset);
    o->type_flags = O(PyTypeObject, tp_flags);
    o->type_mro = O(PyTypeObject, tp_mro);
    o->type_dict = O(PyTypeObject, tp_dict);
    o->heaptype_cached_keys = O(PyHeapTypeObject, ht_cached_keys);
    o->heaptype_qualname = O(PyHeapTypeObject, ht_qualname);
    o->unicode_length = O(PyASCIIObject, length);
    o->unicode_state = O(PyASCIIObject, state);
    o->unicode_ascii_size = sizeof(PyASCIIObject);
    o->unicode_compact_size = sizeof(PyCompactUnicodeObject);
    o->unicode_data = O(PyUnicodeObject, data);
    o->unicode_kind_bit = STATE_BIT(kind);
    o->unicode_compact_bit = STATE_BIT(compact);
    o->unicode_ascii_bit = STATE_BIT(ascii);
    o->bytes_size = O(PyBytesObject, ob_base.ob_size);
    o->bytes_data = O(PyBytesObject, ob_sval);
    o->tuple_items = O(PyTupleObject, ob_item);
    o->list_items = O(PyListObject, ob_item);
    o->float_value = O(PyFloatObject, ob_fval);
    o->complex_value = O(PyComplexObject, cval);
    o->cell_ref = O(PyCellObject, ob_ref);
    o->module_dict = sizeof(PyObject); /* PyModuleObject.md_dict, first behind the head */
    o->method_func = O(PyMethodObject, im_func);
    o->method_self = O(PyMethodObject, im_self);
    o->func_code = O(PyFunctionObject, func_code);
    o->func_qualname = O(PyFunctionObject, func_qualname);
    o->set_used = O(PySetObject, used);
    o->set_mask = O(PySetObject, mask);
    o->set_table = O(PySetObject, table);
#if V < 0x030c0000
    o->long_digits = O(struct _longobject, ob_digit);
#else
    o->long_digits = O(PyLongObject, long_value.ob_digit);
    o->long_tag = O(PyLongObject, long_value.lv_tag);
#endif
    o->dict_used = O(PyDictObject, ma_used);
    o->dict_keys = O(PyDictObject, ma_keys);
    o->dict_values = O(PyDictObject, ma_values);
#if V < 0x030b0000
    o->keys_size = O(struct keys, size);
    o->keys_nentries = O(struct keys, nentries);
    o->keys_indices = O(struct keys, indices);
    o->dictvalues_items = 0; /* a plain array of objects */
#else
    o->keys_log2_size = O(keys_type, dk_log2_size);
    o->keys_log2_index_bytes = O(keys_type, dk_log2_index_bytes);
    o->keys_kind = O(keys_type, dk_kind);
    o->keys_nentries = O(keys_type, dk_nentries);
    o->keys_indices = O(keys_type, dk_indices);
    o->dictvalues_items = O(struct _dictvalues, values);
#endif
}

int main(void)
{
    struct offsets o;

    memset(&o, 0xff, sizeof o); /* -1 in every field that this version lacks */
    o.version = PY_VERSION_HEX;
    runtime_and_threads(&o);
    frames(&o);
    code(&o);
    generators(&o);
    objects(&o);

    printf("{\n    .version = 0x%08x, /* %s%s */\n", o.version, PY_VERSION,
           o.gil_enabled < 0 ? "" : ", free-threaded");
#define X(field) printf("    ." #field " = %d,\n", o.field);
    OFFSETS_FIELDS(X)
    printf("},\n");
    return 0;
}
