#include "fs/sql/functions.h"

#include "fs/sql/match.h"
#include "fs/sql/regexp.h"
#include "fs/sql/stop.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- percentile, median ---- */

struct sample {
    double *values;
    size_t n, alloc;
    double percent;
};

static bool sample_add(struct sample *s, double value)
{
    if (s->n == s->alloc) {
        size_t alloc = s->alloc ? s->alloc * 2 : 64;
        double *values = sqlite3_realloc64(s->values, alloc * sizeof *values);
        if (!values)
            return false;
        s->values = values;
        s->alloc = alloc;
    }
    s->values[s->n++] = value;
    return true;
}

static void percentile_step(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    struct sample *s = sqlite3_aggregate_context(context, sizeof *s);
    int type = sqlite3_value_numeric_type(argv[0]);

    if (!s) {
        sqlite3_result_error_nomem(context);
        return;
    }
    s->percent = argc > 1 ? sqlite3_value_double(argv[1]) : 50;
    if (!(s->percent >= 0 && s->percent <= 100))
        sqlite3_result_error(context, "percentile() takes a percentage from 0 to 100", -1);
    else if (type != SQLITE_NULL && type != SQLITE_INTEGER && type != SQLITE_FLOAT)
        sqlite3_result_error(context, "percentile() and median() take numbers", -1);
    else if (type != SQLITE_NULL && !sample_add(s, sqlite3_value_double(argv[0])))
        sqlite3_result_error_nomem(context);
}

static void swap(double *a, double *b)
{
    double value = *a;

    *a = *b;
    *b = value;
}

/* Puts the value there that would be at index k if all were sorted, none above it before, none
 * below it behind: Hoare's quickselect. False: the statement is to end. */
static bool select_kth(double *v, size_t n, size_t k, const struct stop *stop)
{
    size_t low = 0, high = n;

    while (high - low > 1) {
        double pivot = v[low + (high - low) / 2];
        size_t i = low, above = high, at = low; /* [low,i) below it, [above,high) above it */
        if (stop_reason(stop) < 0)
            return false;
        while (at < above)
            if (v[at] < pivot)
                swap(&v[i++], &v[at++]);
            else if (v[at] > pivot)
                swap(&v[at], &v[--above]);
            else
                at++;
        if (k >= i && k < above)
            return true;
        if (k < i)
            high = i;
        else
            low = above;
    }
    return true;
}

static double least(const double *v, size_t n)
{
    double result = *v;

    for (size_t i = 1; i < n; i++)
        result = v[i] < result ? v[i] : result;
    return result;
}

static void percentile_final(sqlite3_context *context)
{
    struct sample *s = sqlite3_aggregate_context(context, 0);

    if (!s || !s->n) { /* NULL */
        if (s)
            sqlite3_free(s->values);
        return;
    }
    double at = s->percent / 100 * (double)(s->n - 1);
    size_t low = (size_t)at;
    double fraction = at - (double)low;
    if (select_kth(s->values, s->n, low, sqlite3_user_data(context))) {
        double result = s->values[low];
        if (fraction > 0 && low + 1 < s->n)
            result += (least(s->values + low + 1, s->n - low - 1) - result) * fraction;
        sqlite3_result_double(context, result);
    } else {
        sqlite3_result_error_code(context, SQLITE_INTERRUPT);
    }
    sqlite3_free(s->values);
}

/* ---- instr, replace ---- */

struct bytes {
    const char *data;
    size_t size;
};

/* A BLOB as it is, anything else as text. False: NULL. */
static bool bytes_of(sqlite3_value *value, struct bytes *out)
{
    bool blob = sqlite3_value_type(value) == SQLITE_BLOB;

    if (sqlite3_value_type(value) == SQLITE_NULL)
        return false;
    out->data = blob ? sqlite3_value_blob(value) : (const char *)sqlite3_value_text(value);
    out->size = (size_t)sqlite3_value_bytes(value);
    if (!out->data)
        *out = (struct bytes){"", 0};
    return true;
}

static void instr_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    bool blobs = sqlite3_value_type(argv[0]) == SQLITE_BLOB &&
                 sqlite3_value_type(argv[1]) == SQLITE_BLOB;
    struct bytes in, what;
    sqlite3_int64 n = 1;

    if (!bytes_of(argv[0], &in) || !bytes_of(argv[1], &what))
        return; /* NULL */
    const char *at = what.size ? memmem(in.data, in.size, what.data, what.size) : in.data;
    for (const char *p = in.data; at && p < at; p++) /* characters, of texts */
        n += blobs || ((unsigned char)*p & 0xc0) != 0x80;
    sqlite3_result_int64(context, at ? n : 0);
}

/* memmem(3) that finds one byte without a look at all that follows, as AddressSanitizer's takes. */
static const char *find(const char *p, size_t n, const struct bytes *what)
{
    return what->size == 1 ? memchr(p, what->data[0], n) : memmem(p, n, what->data, what->size);
}

static void replace_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    sqlite3 *db = sqlite3_context_db_handle(context);
    size_t most = (size_t)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, -1);
    struct bytes in, what, with;

    if (!bytes_of(argv[0], &in) || !bytes_of(argv[1], &what) || !bytes_of(argv[2], &with))
        return; /* NULL */
    if (!what.size) {
        sqlite3_result_value(context, argv[0]);
        return;
    }
    sqlite3_str *out = sqlite3_str_new(db);
    const char *p = in.data, *end = in.data + in.size, *at;
    while (sqlite3_str_errcode(out) == SQLITE_OK && (size_t)sqlite3_str_length(out) <= most &&
           (at = find(p, (size_t)(end - p), &what))) {
        sqlite3_str_append(out, p, (int)(at - p));
        sqlite3_str_append(out, with.data, (int)with.size);
        p = at + what.size;
    }
    sqlite3_str_append(out, p, (int)(end - p));
    int error = sqlite3_str_errcode(out), size = sqlite3_str_length(out);
    char *text = sqlite3_str_finish(out);
    if (error == SQLITE_NOMEM)
        sqlite3_result_error_nomem(context);
    else if (error != SQLITE_OK)
        sqlite3_result_error_toobig(context);
    else
        sqlite3_result_text(context, text ? text : "", text ? size : 0, SQLITE_TRANSIENT);
    sqlite3_free(text);
}

int functions_add(sqlite3 *db, const struct stop *stop)
{
    static const struct {
        const char *name;
        int argc;
        void (*function)(sqlite3_context *, int, sqlite3_value **);
        void (*final)(sqlite3_context *);
    } functions[] = {
        {"percentile", 2, percentile_step, percentile_final},
        {"median", 1, percentile_step, percentile_final},
        {"regexp", 2, regexp_function, NULL},
        {"like", 2, like_function, NULL},
        {"like", 3, like_function, NULL},
        {"glob", 2, glob_function, NULL},
        {"trim", 2, trim_function, NULL},
        {"ltrim", 2, ltrim_function, NULL},
        {"rtrim", 2, rtrim_function, NULL},
        {"instr", 2, instr_function, NULL},
        {"replace", 3, replace_function, NULL},
    };

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        bool aggregate = functions[i].final;
        if (sqlite3_create_function(db, functions[i].name, functions[i].argc,
                                    SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                    (void *)stop, aggregate ? NULL : functions[i].function,
                                    aggregate ? functions[i].function : NULL,
                                    functions[i].final) != SQLITE_OK)
            return -ENOMEM;
    }
    return 0;
}
