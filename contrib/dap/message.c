#include "contrib/dap/message.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define LINE_BYTES 1024 /* of the head, at most */

/* The value behind a name of the head, in any case of letters; NULL: the line has another one. */
static const char *value_of(const char *line, const char *name)
{
    size_t size = strlen(name);

    if (strncasecmp(line, name, size) != 0 || line[size] != ':')
        return NULL;
    return line + size + 1 + strspn(line + size + 1, " \t");
}

static ssize_t read_size(const char *value)
{
    size_t digits = strspn(value, "0123456789");
    unsigned long size = strtoul(value, NULL, 10);

    return digits && !value[digits] && size <= MESSAGE_MAX ? (ssize_t)size : -EPROTO;
}

/* How long the message is that comes next; -EPIPE, -EPROTO. */
static ssize_t read_head(FILE *in)
{
    char line[LINE_BYTES];
    ssize_t size = -EPROTO;
    bool begun = false;

    for (; fgets(line, sizeof line, in); begun = true) {
        size_t n = strcspn(line, "\r\n");
        if (!line[n])
            return -EPROTO; /* it has no end */
        if (!n)
            return size;
        line[n] = '\0';
        const char *length = value_of(line, "Content-Length");
        if (length)
            size = read_size(length);
        if (length ? size < 0 : !value_of(line, "Content-Type"))
            return -EPROTO;
    }
    return begun ? -EPROTO : -EPIPE;
}

int message_read(FILE *in, json_t **out)
{
    ssize_t size = read_head(in);

    if (size < 0)
        return (int)size;
    _cleanup_free_ char *text = malloc((size_t)size + 1);
    if (!text)
        return -ENOMEM;
    if (fread(text, 1, (size_t)size, in) != (size_t)size)
        return -EPIPE;
    *out = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (json_is_object(*out))
        return 0;
    json_decref(*out);
    *out = NULL;
    return -EBADMSG;
}

static int write_all(int out, const char *text, size_t size)
{
    while (size) {
        ssize_t n = write(out, text, size);
        if (n < 0 && errno != EINTR)
            return -errno;
        text += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int message_write(int out, const json_t *message)
{
    _cleanup_free_ char *body = json_dumps(message, JSON_COMPACT);
    _cleanup_free_ char *text = NULL;

    if (!body)
        return -ENOMEM;
    int size = asprintf(&text, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    return size < 0 ? -ENOMEM : write_all(out, text, (size_t)size);
}
