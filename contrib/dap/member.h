/* Members of JSON objects, as messages and files have them. */
#pragma once

#include <jansson.h>
#include <string.h>

/* A member that is a text; NULL: it isn't there, or is none. */
static inline const char *member_text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* member_text() that gives "" where there is none. */
static inline const char *member_words(const json_t *object, const char *name)
{
    const char *text = member_text(object, name);
    return text ? text : "";
}

/* A member that is a number; 0: it isn't there, or is none. */
static inline json_int_t member_number(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* A new text, also of bytes that are no UTF-8: then each that isn't ASCII is a question mark. */
static inline json_t *text_of(const char *bytes, size_t size)
{
    json_t *text = json_stringn(bytes, size);
    char *copy = text ? NULL : strndup(bytes, size);

    for (char *p = copy; p && *p; p++)
        *p = (unsigned char)*p < 0x80 ? *p : '?';
    if (copy)
        text = json_string(copy);
    free(copy);
    return text;
}
