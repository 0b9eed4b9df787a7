/* str: see unicode.h for the head. The code points of a legacy string are elsewhere (subclasses of
 * str), and up to 3.11 they may be wchar_t that were never converted. */
#include "fs/remote/objects/object.h"
#include "fs/remote/objects/unicode.h"

#include <errno.h>
#include <string.h>

#define HEAD_MAX 64 /* sizeof(PyASCIIObject) is 40, 48 or 56 */
#define CHUNK 128u  /* code points copied at once */

/* Up to 3.11 the last members of PyASCIIObject and PyCompactUnicodeObject are wstr and
 * wstr_length. */
static bool read_wstr(struct view *view, const struct offsets *offsets, uint64_t object,
                      struct str_data *out)
{
    if (offsets->version >= 0x030c0000 || offsets->unicode_compact_size < 8)
        return false;
    out->width = sizeof(wchar_t);
    return object_field(view, object, offsets->unicode_ascii_size - 8, &out->addr) &&
           object_field(view, object, offsets->unicode_compact_size - 8, &out->length);
}

int str_read(struct view *view, const struct offsets *o, uint64_t object, struct str_data *out)
{
    uint8_t copy[HEAD_MAX] = {0}; /* without its reference count, which changes with each use */
    struct str_data data;
    struct unicode head;
    uint64_t type, flags;

    if (!object_type(view, o, object, &type) || !object_field(view, type, o->type_flags, &flags))
        return -EFAULT;
    if (!(flags & TPFLAGS_UNICODE_SUBCLASS))
        return -EINVAL;
    if (o->unicode_ascii_size > HEAD_MAX || o->unicode_ascii_size < o->object_size ||
        o->unicode_state < 0 || o->unicode_state > o->unicode_ascii_size - 4 ||
        o->unicode_length < 0 || o->unicode_length > o->unicode_ascii_size - 8 ||
        o->unicode_compact_size < 0)
        return -EFAULT;
    const uint32_t type_at = (uint32_t)o->object_type;
    size_t size = (size_t)o->unicode_ascii_size - type_at;
    const uint8_t *bytes = view_read(view, object + type_at, (uint32_t)size);
    if (!bytes)
        return -EFAULT;
    memcpy(copy + type_at, bytes, size);
    if (!unicode_head(o, copy, &head))
        return -EFAULT;

    data = (struct str_data){object + head.data, head.length, head.kind};
    if (!head.compact && head.kind == 0) {
        if (!read_wstr(view, o, object, &data) || data.length >= 1ull << 40)
            return -EFAULT;
    } else if (!head.compact && !object_field(view, object, o->unicode_data, &data.addr)) {
        return -EFAULT;
    }
    if (!data.width)
        return -EFAULT;
    *out = data;
    return 0;
}

int str_decode(struct view *view, const struct offsets *offsets, uint64_t object, size_t max,
               struct text *out)
{
    struct str_data data;

    int r = str_read(view, offsets, object, &data);
    if (r < 0)
        return r;
    uint64_t n = data.length < max ? data.length : max;
    size_t before = out->size;
    for (uint64_t i = 0; i < n;) {
        uint64_t step = n - i < CHUNK ? n - i : CHUNK;
        const uint8_t *p =
            view_read(view, data.addr + i * data.width, (uint32_t)(step * data.width));
        if (!p) {
            text_truncate(out, before);
            return -EFAULT;
        }
        for (uint64_t k = 0; k < step; k++, p += data.width)
            text_add_codepoint(out, data.width == 1 ? *p : data.width == 2 ? load16(p) : load32(p));
        i += step;
    }
    return n < data.length;
}

int str_file_name(struct view *view, const struct offsets *offsets, uint64_t name, char *path,
                  size_t cap)
{
    struct str_data data;
    size_t n = 0;

    int r = str_read(view, offsets, name, &data);
    if (r < 0)
        return r;
    if (data.length >= cap)
        return -ENAMETOOLONG;
    const uint8_t *p = view_read(view, data.addr, (uint32_t)data.length * data.width);
    if (data.length && !p)
        return -EFAULT;
    for (uint64_t i = 0; i < data.length; i++, p += data.width) {
        uint32_t c = data.width == 1 ? *p : data.width == 2 ? load16(p) : load32(p);
        if (n + 5 > cap)
            return -ENAMETOOLONG;
        if (c == 0 || c > 0x10ffff) {
            return -EINVAL;
        } else if (c < 0x80) {
            path[n++] = (char)c;
        } else if (c < 0x800) {
            path[n++] = (char)(0xc0 | c >> 6);
            path[n++] = (char)(0x80 | (c & 63));
        } else if (c >= 0xdc80 && c < 0xdd00) {
            path[n++] = (char)(c & 0xff);
        } else if (c < 0x10000) {
            path[n++] = (char)(0xe0 | c >> 12);
            path[n++] = (char)(0x80 | (c >> 6 & 63));
            path[n++] = (char)(0x80 | (c & 63));
        } else {
            path[n++] = (char)(0xf0 | c >> 18);
            path[n++] = (char)(0x80 | (c >> 12 & 63));
            path[n++] = (char)(0x80 | (c >> 6 & 63));
            path[n++] = (char)(0x80 | (c & 63));
        }
    }
    path[n] = 0;
    return 0;
}

bool str_equals(struct view *view, const struct offsets *offsets, uint64_t object, const char *text)
{
    struct str_data data;
    size_t length = strlen(text);

    if (str_read(view, offsets, object, &data) < 0 || data.width != 1 || data.length != length)
        return false;
    const uint8_t *bytes = view_read(view, data.addr, (uint32_t)length);
    return bytes && !memcmp(bytes, text, length);
}
