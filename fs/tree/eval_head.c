#include "fs/tree/eval_head.h"

#include "fs/tree/everywhere.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define HEAD_LINE_MAX 4096 /* bytes */

/* Whether a line is `on` and a digit: no Python begins like that. */
static bool begins_with_ranks(const char *line, size_t size)
{
    size_t i = 2;

    if (size < 3 || memcmp(line, "on", 2) || (line[2] != ' ' && line[2] != '\t'))
        return false;
    while (i < size && (line[i] == ' ' || line[i] == '\t'))
        i++;
    return i < size && isdigit((unsigned char)line[i]);
}

static bool is_strict(const char *line, size_t size)
{
    static const char word[] = "-- strict";

    while (size && (line[size - 1] == ' ' || line[size - 1] == '\t'))
        size--;
    return size == sizeof word - 1 && memcmp(line, word, size) == 0;
}

static int complain(struct file_context *context)
{
    text_puts(&context->why, "ranks belong behind `on`, and nothing else: on 0,2-3");
    return -EINVAL;
}

int eval_head_read(struct file_context *context, const struct input *input, struct eval_head *out)
{
    while (out->size < input->size) {
        const char *line = input->text + out->size, *rest, *wrong;
        size_t left = input->size - out->size;
        const char *newline = memchr(line, '\n', left);
        size_t size = newline ? (size_t)(newline - line) : left;
        bool ranks = begins_with_ranks(line, size), strict = is_strict(line, size);
        if (!newline && !input->last && (ranks || size < 10) && left < HEAD_LINE_MAX &&
            (ranks || !strncmp(line, "-- strict", size) || !strncmp(line, "on ", size)))
            return 1;
        if (!ranks && !strict)
            return 0;
        out->strict |= strict;
        if (ranks && (everywhere_read_on(line, size, &out->ranges, &rest, &wrong) < 0 ||
                      strspn(rest, " \t") < (size_t)(line + size - rest)))
            return complain(context);
        out->has_ranks |= ranks;
        out->size += size + (newline != NULL);
    }
    return 0;
}
