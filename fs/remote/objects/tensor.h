/* The tensors of PyTorch, read from outside.
 *
 * No version of PyTorch says where c10::TensorImpl has its fields (c10/core/TensorImpl.h), so they
 * are found, and what was found is proven; what can't be is left out.
 *   - The pointer back to the Python object anchors the layout: behind it stand, in all versions
 *     alike, the sizes and strides of up to five dimensions, or where those of more are, the number
 *     of elements, the type and the device; before it the storage, what autograd knows and the
 *     counter of versions, each a few words away. Proof: the number of elements is the product of
 *     the sizes, and the type is one that there is.
 *   - The storage (c10/core/StorageImpl.h) is believed if it is counted, has the tensor's device,
 *     and behind that a number of bytes in which all its elements lie.
 *   - The counter is believed if it stands where the counts in front of the storage say, and has
 *     the same head as any other counted object.
 *   - The gradient (torch/csrc/autograd/variable.h) is believed if it is laid out as the tensor
 *     itself, and has its sizes; where there is none, it is an empty tensor without storage. */
#pragma once

#include "fs/remote/objects/object.h"

#define TENSOR_DIMENSIONS_MAX 64

enum tensor_kind {
    TENSOR_SIGNED, /* a whole number */
    TENSOR_UNSIGNED,
    TENSOR_FLOAT, /* IEEE 754, of 2, 4 or 8 bytes */
    TENSOR_BFLOAT,
    TENSOR_COMPLEX, /* two floats, of `size` bytes together */
    TENSOR_OPAQUE,  /* quantized, packed, or of 8 bits: its values aren't read */
};

struct tensor_type {
    const char *name;
    uint8_t size; /* [B] */
    enum tensor_kind kind;
};

struct tensor {
    uint64_t object; /* PyObject; 0: it is a gradient, which may have none */
    uint64_t impl;   /* c10::TensorImpl */
    unsigned back;   /* words of that before the pointer back to the object */
    unsigned head;   /* words of that before the pointer to the storage */
    const struct tensor_type *type;
    unsigned ndim;
    int64_t sizes[TENSOR_DIMENSIONS_MAX], strides[TENSOR_DIMENSIONS_MAX]; /* in elements */
    uint64_t numel;                                                       /* elements */
    int device; /* c10/core/DeviceType.h; 0: cpu, -1: not known */
    int index;  /* of that kind of device; -1: none */

    /* 0: not known, or there is none */
    uint64_t storage;       /* c10::StorageImpl */
    uint64_t storage_bytes; /* [B] */
    uint64_t data;          /* address of its first element, on its device */
    uint64_t counter;       /* address of its version: 4 bytes, which each change in place raises */
    uint32_t version;
    uint64_t autograd;   /* torch::autograd::AutogradMeta */
    uint64_t gradient;   /* TensorImpl of .grad */
    bool knows_autograd; /* whether the latter two are known, and the next one */
    bool has_node;       /* what computed it is kept, for its gradient: grad_fn */
};

/* Whether a type is the base of all tensors' types. */
bool tensor_is_base(struct view *view, const struct offsets *offsets, uint64_t type);
/* Whether a type is torch.Tensor or a class derived from it. */
bool tensor_is_type(struct view *view, const struct offsets *offsets, uint64_t type);
/* Reads what a tensor is, not its values. -EINVAL: the object is no tensor, or none that is laid
 * out as known. */
int tensor_read(struct view *view, const struct offsets *offsets, uint64_t object,
                struct tensor *out);
/* tensor_read() without a check of its type: tensor_is_type() said so. -EAGAIN: what tells is
 * queued, in a view that defers. */
int tensor_read_object(struct view *view, const struct offsets *offsets, uint64_t object,
                       struct tensor *out);
/* Whether both have the same type and sizes. */
bool tensor_is_alike(const struct tensor *a, const struct tensor *b);
/* Reads the gradient of a tensor. -ENOENT: it has none, or it isn't known. */
int tensor_read_gradient(struct view *view, const struct tensor *of, struct tensor *out);

/* Adds "float32[64, 32] cuda:0". */
void tensor_add(const struct tensor *tensor, struct text *out);
/* The parts of that: "[64, 32]", and "cuda:0"; nothing for a device that isn't known. */
void tensor_add_shape(const struct tensor *tensor, struct text *out);
void tensor_add_device(const struct tensor *tensor, struct text *out);
