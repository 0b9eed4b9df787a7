#include "fs/remote/objects/number.h"
#include "fs/remote/objects/quote.h"
#include "fs/remote/objects/values.h"

#include <errno.h>
#include <string.h>

#define BYTEARRAY_START 24 /* Include/cpython/bytearrayobject.h ob_start */

struct int_data {
    uint64_t addr; /* of the digits: 30 bits in 4 bytes each, least significant first */
    uint64_t n;
    bool negative;
};

/* PyLongObject: up to 3.11 the sign of ob_size, then lv_tag: number << 3 | sign. */
static int int_read(struct view *view, const struct offsets *o, uint64_t object,
                    struct int_data *out)
{
    struct object_class class;
    uint64_t size;

    int r = object_classify(view, o, object, &class);
    if (r < 0)
        return r;
    if (class.kind != OBJECT_INT && class.kind != OBJECT_BOOL)
        return -EINVAL;
    int32_t field = o->long_tag < 0 ? o->object_size : o->long_tag;
    if (o->long_digits < 0 || !object_field(view, object, field, &size))
        return -EFAULT;
    if (o->long_tag >= 0) {
        out->negative = (size & 3) == 2;
        out->n = size >> 3;
    } else {
        out->negative = (int64_t)size < 0;
        out->n = out->negative ? -size : size;
    }
    out->addr = object + (uint32_t)o->long_digits;
    return out->n < 1ull << 40 ? 0 : -EFAULT;
}

int int_to_i64(struct view *view, const struct offsets *offsets, uint64_t object, int64_t *out)
{
    struct int_data data;
    __uint128_t value = 0;

    int r = int_read(view, offsets, object, &data);
    if (r < 0)
        return r;
    if (data.n > 3) /* digits of 30 bits */
        return -ERANGE;
    const uint8_t *p = data.n ? view_read(view, data.addr, (uint32_t)data.n * 4) : NULL;
    if (data.n && !p)
        return -EFAULT;
    for (unsigned i = (unsigned)data.n; i-- > 0;)
        value = value << 30 | (load32(p + 4ull * i) & 0x3fffffff);
    if (value > (__uint128_t)INT64_MAX + data.negative)
        return -ERANGE;
    *out = data.negative ? (int64_t) - (uint64_t)value : (int64_t)value;
    return 0;
}

bool render_int(struct renderer *r, uint64_t object)
{
    struct int_data data;
    uint32_t limbs[NUMBER_LIMBS_MAX];

    if (int_read(r->view, r->offsets, object, &data) < 0)
        return false;
    uint64_t first = data.n <= NUMBER_LIMBS_MAX ? 0 : data.n - 1, n = data.n - first;
    const uint8_t *p = n ? view_read(r->view, data.addr + 4 * first, (uint32_t)n * 4) : NULL;
    if (n && !p)
        return false;
    if (n)
        memcpy(limbs, p, n * 4);
    if (!first && number_add_int(r->out, limbs, (unsigned)n, data.negative))
        return true;
    uint32_t top = limbs[n - 1] & 0x3fffffff;
    uint64_t bits = 30 * (data.n - 1) + (top ? 32 - (unsigned)__builtin_clz(top) : 0);
    text_printf(r->out, "<%sint of %lu bits>", data.negative ? "negative " : "", bits);
    return true;
}

static bool read_doubles(struct renderer *r, uint64_t object, int32_t offset, double *out,
                         uint32_t n)
{
    const uint8_t *p = offset < 0 ? NULL : view_read(r->view, object + (uint32_t)offset, 8 * n);
    if (p)
        memcpy(out, p, 8ull * n);
    return p;
}

bool render_float(struct renderer *r, uint64_t object)
{
    double value;

    if (!read_doubles(r, object, r->offsets->float_value, &value, 1))
        return false;
    number_add_float(r->out, value);
    return true;
}

bool render_complex(struct renderer *r, uint64_t object)
{
    double value[2];

    if (!read_doubles(r, object, r->offsets->complex_value, value, 2))
        return false;
    number_add_complex(r->out, value[0], value[1]);
    return true;
}

bool render_str(struct renderer *r, uint64_t object)
{
    struct str_data data;

    if (str_read(r->view, r->offsets, object, &data) < 0)
        return false;
    uint32_t n = data.length < VALUE_STRING_MAX ? (uint32_t)data.length : VALUE_STRING_MAX;
    const uint8_t *p = n ? view_read(r->view, data.addr, n * data.width) : NULL;
    if (n && !p)
        return false;
    quote_add_str(r->out, p, data.width, n);
    if (n < data.length)
        render_count(r, data.length, "character");
    return true;
}

static bool add_bytes(struct renderer *r, uint64_t addr, uint64_t length)
{
    uint32_t n = length < VALUE_STRING_MAX ? (uint32_t)length : VALUE_STRING_MAX;
    const uint8_t *p = n ? view_read(r->view, addr, n) : NULL;
    if (n && !p)
        return false;
    quote_add_bytes(r->out, p, n);
    if (n < length)
        render_count(r, length, "byte");
    return true;
}

bool render_bytes(struct renderer *r, uint64_t object)
{
    uint64_t length;

    return r->offsets->bytes_data >= 0 &&
           object_field(r->view, object, r->offsets->bytes_size, &length) &&
           add_bytes(r, object + (uint32_t)r->offsets->bytes_data, length);
}

bool render_bytearray(struct renderer *r, uint64_t object)
{
    uint64_t length, start;

    return object_size(r->view, r->offsets, object, &length) &&
           object_field(r->view, object, r->offsets->object_size + BYTEARRAY_START, &start) &&
           add_bytes(r, start, length);
}
