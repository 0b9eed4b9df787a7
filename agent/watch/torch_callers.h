/* Which operators of PyTorch a thread was in when it changed a tensor.
 *
 * In the handler of SIGTRAP no stack is unwound. What is on it near its top is looked through
 * for addresses behind calls in libtorch_cpu, up to the one in libtorch_python from where Python
 * called into that; the thread that takes hits asks what those are called. What an operator is
 * entered by is an exported function, at::_ops::add__Tensor::call(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TORCH_CALLERS_MAX 32
#define TORCH_OPERATOR_MAX 96

struct torch_callers {
    uint32_t n;
    uint64_t addresses[TORCH_CALLERS_MAX]; /* from the innermost on */
};

/* Learns where PyTorch's code is. False: it isn't loaded. Not in the handler. */
bool torch_callers_bind(void);
/* Notes what is on the stack from here on, in the handler. */
void torch_callers_capture(uint64_t stack, struct torch_callers *out);
/* The operator that changes its tensor in place: the outermost, and the one that this does it by,
 * if that is another: "_foreach_add_ by add_". "": it isn't known. Not in the handler; one thread.
 */
void torch_callers_name(const struct torch_callers *callers, char out[TORCH_OPERATOR_MAX]);
