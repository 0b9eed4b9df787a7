/* A command line of any words (each ends with a NUL): it is taken, or refused in words. */
#include "fs/mount/options.h"
#include "tests/fuzz/fuzz.h"

#include <fuse_log.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64

static void be_quiet(enum fuse_log_level level, const char *format, va_list arguments) {}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *words[WORDS_MAX + 2] = {(char[]){"probefs"}}, *line = malloc(size + 1);
    struct text why = TEXT_INIT;
    struct options options;
    int n = 1;

    fuse_set_log_func(be_quiet);
    memcpy(line, data, size);
    line[size] = 0;
    for (size_t at = 0; at < size && n <= WORDS_MAX; at += strlen(line + at) + 1)
        words[n++] = line + at;
    int r = options_parse(n, words, &options, &why);
    if (r == 0) {
        if (options.hidepid > HIDEPID_INVISIBLE || options.fuse.argc < 2 ||
            (!options.mountpoint && !options.help && !options.version && !options.check))
            abort();
        options_deinit(&options);
    } else if (!why.size) {
        abort();
    }
    text_deinit(&why);
    free(line);
    return 0;
}
