#include "fs/mount/options.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/duration.h"
#include "fs/base/size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROFILE_ALL_HZ 19 /* unless told otherwise */

enum { KEY_CORE };

static const struct fuse_opt specs[] = {
    {"-h", offsetof(struct options, help), true},
    {"--help", offsetof(struct options, help), true},
    {"-V", offsetof(struct options, version), true},
    {"--version", offsetof(struct options, version), true},
    {"--check", offsetof(struct options, check), true},
    {"-f", offsetof(struct options, foreground), true},
    {"--foreground", offsetof(struct options, foreground), true},
    {"-d", offsetof(struct options, foreground), true},
    {"debug", offsetof(struct options, foreground), true},
    {"allow_other", offsetof(struct options, allow_other), true},
    {"nonempty", offsetof(struct options, nonempty), true},
    {"hidepid=%u", offsetof(struct options, hidepid), 0},
    {"contain=%s", offsetof(struct options, contain_word), 0},
    {"sysroot=%s", offsetof(struct options, sysroot), 0},
    FUSE_OPT_KEY("core=", KEY_CORE),
    {"profile=%s", offsetof(struct options, profile), 0},
    {"history=%s", offsetof(struct options, history), 0},
    {"history_age=%s", offsetof(struct options, history_age), 0},
    {"history_size=%s", offsetof(struct options, history_size), 0},
    {"history_interval=%s", offsetof(struct options, history_interval), 0},
    /* -d and allow_other are libfuse's too */
    FUSE_OPT_KEY("-d", FUSE_OPT_KEY_KEEP),
    FUSE_OPT_KEY("debug", FUSE_OPT_KEY_KEEP),
    FUSE_OPT_KEY("allow_other", FUSE_OPT_KEY_KEEP),
    /* mount.fuse3(8) adds these unasked; nothing in the tree is a device or changes ids */
    FUSE_OPT_KEY("dev", FUSE_OPT_KEY_DISCARD),
    FUSE_OPT_KEY("suid", FUSE_OPT_KEY_DISCARD),
    /* of fstab(5), which libfuse doesn't know; no times of access are kept */
    FUSE_OPT_KEY("relatime", FUSE_OPT_KEY_DISCARD),
    FUSE_OPT_KEY("strictatime", FUSE_OPT_KEY_DISCARD),
    FUSE_OPT_KEY("lazytime", FUSE_OPT_KEY_DISCARD),
    FUSE_OPT_END,
};

struct parse {
    struct options options; /* first: the offsets above are relative to it */
    struct text *why;
};

/* mount(8) gives the source in front of the mount point: a word like "none". */
static int take_name(struct parse *parse, const char *arg)
{
    struct options *options = &parse->options;

    if (options->mountpoint && (options->source || strchr(options->mountpoint, '/'))) {
        text_printf(parse->why, "more than one mount point: %s and %s", options->mountpoint, arg);
        return -1;
    }
    options->source = options->mountpoint;
    options->mountpoint = strdup(arg);
    return options->mountpoint ? 0 : -1;
}

/* FILE[:EXECUTABLE], where FILE may have colons if it is there. */
static int take_core(struct options *options, const char *arg)
{
    const char *colon = access(arg, F_OK) < 0 ? strrchr(arg, ':') : NULL;
    size_t size = colon ? (size_t)(colon - arg) : strlen(arg);

    if (ARRAY_GROW(options->cores, options->cores_alloc, options->ncores + 1) < 0)
        return -1;
    struct core_option *core = &options->cores[options->ncores++];
    *core = (struct core_option){
        .path = strndup(arg, size),
        .executable = colon ? strdup(colon + 1) : NULL,
    };
    return core->path && !colon == !core->executable ? 0 : -1;
}

static int take(void *data, const char *arg, int key, struct fuse_args *out)
{
    struct parse *parse = data;

    if (key == KEY_CORE)
        return take_core(&parse->options, arg + strlen("core="));
    if (key == FUSE_OPT_KEY_NONOPT)
        return take_name(parse, arg);
    if (arg[0] == '-') {
        text_printf(parse->why, "unknown option %s; see probefs --help", arg);
        return -1;
    }
    return 1; /* an -o option: libfuse knows it, or says that it doesn't */
}

/* What libfuse is told unless the command line says otherwise, whose options come behind these. */
static int add_defaults(struct options *options)
{
    const char *source = options->source && options->source[0] ? options->source : "probefs";
    _cleanup_free_ char *defaults = strdup("-osubtype=probefs,nosuid,nodev,noexec");
    _cleanup_free_ char *name = NULL;

    if (!defaults || asprintf(&name, "fsname=%s", source) < 0 ||
        fuse_opt_add_opt_escaped(&defaults, name) < 0)
        return -1;
    return fuse_opt_insert_arg(&options->fuse, 1, defaults);
}

/* How much of the history is kept. */
static int read_limits(struct options *options, struct text *why)
{
    struct history_limits *limits = &options->history_limits;
    const char *age = options->history_age, *size = options->history_size;
    const char *interval = options->history_interval;

    if (age && (!duration_parse(age, strlen(age), &limits->age) || limits->age < HISTORY_AGE_MIN)) {
        text_puts(why, "history_age takes a time of at least a minute, as 12h or 30d");
        return -1;
    }
    if (size && (!size_parse(size, strlen(size), &limits->bytes) ||
                 limits->bytes < HISTORY_BYTES_MIN || limits->bytes > HISTORY_BYTES_MAX)) {
        text_puts(why, "history_size takes a size of 1M to 1024G, as 512M");
        return -1;
    }
    if (interval &&
        (!duration_parse(interval, strlen(interval), &limits->interval) ||
         limits->interval < HISTORY_INTERVAL_MIN || limits->interval > HISTORY_INTERVAL_MAX)) {
        text_puts(why, "history_interval takes a time of 1s to 1h");
        return -1;
    }
    if ((age || size || interval) && !options->history) {
        text_puts(why, "history_age, history_size and history_interval say how history=FILE is "
                       "kept; name a file");
        return -1;
    }
    return 0;
}

/* What is sampled of every process: as for `profile` in ctl, with colons for the blanks. */
static int read_profile(struct options *options, struct text *why)
{
    const char *at;

    if (!options->profile)
        return 0;
    _cleanup_free_ char *text = strdup(options->profile);
    if (!text)
        return -1;
    for (char *p = text; *p; p++)
        *p = *p == ':' ? ' ' : *p;
    text_printf(why, "profile=%s: ", options->profile);
    if (profile_request_read(text, strlen(text), &options->profile_request, &at, why) < 0)
        return -1;
    if (options->profile_request.verb != PROFILE_START || options->profile_request.options.tid ||
        options->profile_request.duration) {
        text_puts(why, "write modes and a rate, as profile=cpu:19hz");
        return -1;
    }
    if (!strcasestr(text, "hz"))
        options->profile_request.options.hz = PROFILE_ALL_HZ;
    text_clear(why);
    return 0;
}

/* Where all may look, one user's processes must not reach another's by what reads them. */
static int read_contain(struct options *options, struct text *why)
{
    static const char *const words[] = {
        [CONTAIN_NO] = "no", [CONTAIN_YES] = "yes", [CONTAIN_STRICT] = "strict"};

    for (unsigned i = 0; options->contain_word && i < ARRAY_SIZE(words); i++) {
        if (!strcmp(options->contain_word, words[i])) {
            options->contain = (enum contain)i;
            return 0;
        }
    }
    if (!options->contain_word) {
        options->contain = options->allow_other && geteuid() == 0 ? CONTAIN_YES : CONTAIN_NO;
        return 0;
    }
    text_puts(why, "contain takes no, yes (what reads a process has that process's rights) or "
                   "strict (and nobody reads what these aren't enough for)");
    return -1;
}

int options_parse(int argc, char **argv, struct options *out, struct text *why)
{
    struct parse parse = {
        .options = {.hidepid = HIDEPID_INVISIBLE,
                    .history_limits = {HISTORY_AGE_NS, HISTORY_BYTES, HISTORY_INTERVAL_NS},
                    .fuse = FUSE_ARGS_INIT(argc, argv)},
        .why = why,
    };
    struct options *options = &parse.options;

    int r = fuse_opt_parse(&options->fuse, &parse, specs, take);
    if (r == 0)
        r = add_defaults(options);
    if (r == 0 && options->hidepid > HIDEPID_INVISIBLE) {
        text_puts(why, "hidepid takes 0 (names can be seen), 1 (only those of directories) "
                       "or 2 (nothing can be seen)");
        r = -1;
    }
    if (r == 0)
        r = read_contain(options, why);
    if (r == 0)
        r = read_limits(options, why);
    if (r == 0)
        r = read_profile(options, why);
    if (r == 0 && options->check && options->mountpoint) {
        text_puts(why, "--check looks at the machine and takes no mount point");
        r = -1;
    }
    if (r == 0 && !options->mountpoint && !options->help && !options->version && !options->check) {
        text_puts(why, "no mount point given: probefs [-f] [-o OPTIONS] [SOURCE] MOUNTPOINT");
        r = -1;
    }
    if (r < 0) {
        if (!why->size)
            text_puts(why, "bad options; see probefs --help");
        options_deinit(options);
        return -EINVAL;
    }
    *out = *options;
    return 0;
}

void options_deinit(struct options *options)
{
    free(options->source);
    free(options->mountpoint);
    for (size_t i = 0; i < options->ncores; i++) {
        free(options->cores[i].path);
        free(options->cores[i].executable);
    }
    free(options->cores);
    free(options->sysroot);
    free(options->contain_word);
    free(options->profile);
    free(options->history);
    free(options->history_age);
    free(options->history_size);
    free(options->history_interval);
    fuse_opt_free_args(&options->fuse);
}

void options_help(struct text *out)
{
    text_puts(
        out,
        "usage: probefs [-f] [-o OPTIONS] [SOURCE] MOUNTPOINT\n"
        "\n"
        "Shows every running CPython process (3.8 to 3.15) as a directory of files below\n"
        "MOUNTPOINT. Looking never touches: no process notices being read.\n"
        "SOURCE, a word like none, is what mount(8) gives, and what the mount is called.\n"
        "\n"
        "    -f, --foreground  stay in the foreground\n"
        "    -d                the same, and print every request\n"
        "    -h, --help        this page\n"
        "    -V, --version     the version\n"
        "    --check           say what this machine lets you do, and what to change where\n"
        "                      it refuses; the exit status is 0 if all that is needed works\n"
        "    -o allow_other    let other users in; each sees only what ptrace(2) would let\n"
        "                      them see (needs root, or user_allow_other in /etc/fuse.conf)\n"
        "    -o hidepid=N      what a user sees of processes that they may not look at:\n"
        "                      0: their directories and the names in them, 1: only the\n"
        "                      directories, 2 (the default): nothing\n"
        "    -o contain=WORD   yes: each user's processes are read by a process with that\n"
        "                      user's rights, which is all that a hostile one can take over\n"
        "                      or crash, and SQL is run by one without rights; strict:\n"
        "                      what needs root's rights isn't read; no: the daemon reads\n"
        "                      and runs all. Root's with allow_other: yes, others: no\n"
        "    -o core=FILE[:EXECUTABLE]  show a core file of a CPython process in cores/; it\n"
        "                      may be given several times\n"
        "    -o sysroot=DIR    look for the files that core files name below DIR\n"
        "    -o profile=MODE[:MODE...][:HZ]\n"
        "                      sample every process all the time, as profile=cpu:19hz\n"
        "    -o history=FILE   append what happens to an SQLite database, every few seconds\n"
        "    -o history_age=TIME, history_size=SIZE, history_interval=TIME\n"
        "                      what of it is kept: 7d and 1G; how often it is appended to: 5s\n"
        "    -o nonempty       mount over a directory that holds something\n"
        "    -o ro, fsname=NAME, ...  what every FUSE mount takes, see mount.fuse3(8)\n"
        "\n"
        "End it with: fusermount3 -u MOUNTPOINT\n"
        "Then read MOUNTPOINT/help.\n");
}
