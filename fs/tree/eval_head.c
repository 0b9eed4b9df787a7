#include "fs/tree/eval_head.h"

#include "fs/base/line.h"
#include "fs/tree/everywhere.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define HEAD_LINE_MAX 4096 /* bytes */
#define STRICT "-- strict"
#define FORMAT "-- format:"

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

/* What is behind the colon, and blanks; NULL: the line says no format. */
static const char *format_of(const char *line, size_t size)
{
    size_t i = sizeof FORMAT - 1;

    if (size < i || memcmp(line, FORMAT, i))
        return NULL;
    while (i < size && (line[i] == ' ' || line[i] == '\t'))
        i++;
    return line + i;
}

/* Whether a line that isn't whole yet may become one of the head. */
static bool may_become(const char *line, size_t size)
{
    return !strncmp(line, STRICT, size) || !strncmp(line, FORMAT, size) || format_of(line, size) ||
           !strncmp(line, "on ", size);
}

static int complain(struct file_context *context, const char *words)
{
    text_puts(&context->why, words);
    return -EINVAL;
}

int eval_head_read(struct file_context *context, const struct input *input, struct eval_head *out)
{
    bool of_ranks = !context->tid && !strstr(context->file, "/crash/");

    while (out->size < input->size) {
        const char *line = input->text + out->size, *rest, *wrong;
        size_t left = input->size - out->size;
        const char *newline = memchr(line, '\n', left);
        size_t size = newline ? (size_t)(newline - line) : left;
        bool ranks = of_ranks && begins_with_ranks(line, size);
        bool strict = of_ranks && line_is(line, size, STRICT);
        const char *said = format_of(line, size);
        if (!newline && !input->last && left < HEAD_LINE_MAX && (ranks || may_become(line, size)))
            return 1;
        if (!ranks && !strict && !said)
            return 0;
        size_t n = said ? (size_t)(line + size - said) : 0;
        bool json = said && line_is(said, n, "json");
        if (said && !json && !line_is(said, n, "repr"))
            return complain(context,
                            "values are shown by -- format: repr, as at a prompt, or json");
        bool is_new = ranks || strict > out->strict || (said && json != out->as_json);
        out->strict |= strict;
        out->as_json = said ? json : out->as_json;
        if (ranks && (everywhere_read_on(line, size, &out->ranges, &rest, &wrong) < 0 ||
                      strspn(rest, " \t") < (size_t)(line + size - rest)))
            return complain(context, "ranks belong behind `on`, and nothing else: on 0,2-3");
        out->has_ranks |= ranks;
        out->size += size + (newline != NULL);
        out->stays = is_new ? out->size : out->stays;
    }
    return 0;
}
