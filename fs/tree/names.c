#include "fs/tree/names.h"

#include "fs/base/array.h"
#include "fs/proc/procfs.h"
#include "fs/process/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct numbers *numbers, const struct number *number)
{
    if (numbers->n == numbers->alloc) {
        size_t alloc = numbers->alloc ? numbers->alloc * 2 : 32;
        struct number *items = realloc(numbers->items, alloc * sizeof *items);
        if (!items) {
            process_unref(number->process);
            free(number->word);
            return -ENOMEM;
        }
        numbers->items = items;
        numbers->alloc = alloc;
    }
    numbers->items[numbers->n++] = *number;
    return 0;
}

int numbers_add(struct numbers *numbers, unsigned value, struct process *process)
{
    return add(numbers, &(struct number){.value = value, .process = process});
}

int numbers_add_word(struct numbers *numbers, const char *word, struct process *process)
{
    char *copy = strdup(word);

    if (copy)
        return add(numbers, &(struct number){.word = copy, .process = process});
    process_unref(process);
    return -ENOMEM;
}

static int by_word(const void *a, const void *b)
{
    const struct number *x = a, *y = b;

    return strcmp(x->word, y->word);
}

void numbers_sort_words(struct numbers *numbers)
{
    array_sort(numbers->items, numbers->n, sizeof *numbers->items, by_word);
}

void numbers_deinit(struct numbers *numbers)
{
    for (size_t i = 0; i < numbers->n; i++) {
        process_unref(numbers->items[i].process);
        free(numbers->items[i].word);
    }
    free(numbers->items);
    *numbers = (struct numbers){0};
}

bool names_worker(int64_t rank, unsigned worker, unsigned *value)
{
    if (rank < 0 || rank >= INT32_MAX / WORKERS_MAX || worker >= WORKERS_MAX)
        return false;
    *value = (unsigned)rank * WORKERS_MAX + worker;
    return true;
}

bool name_parse(enum number_kind kind, const char *name, unsigned *value)
{
    const char *dot = kind == NUMBER_WORKER ? strchr(name, '.') : NULL;
    char rank[12];
    unsigned of, worker;

    if (kind != NUMBER_WORKER)
        return number_parse(name, value);
    if (!dot || (size_t)(dot - name) >= sizeof rank)
        return false;
    memcpy(rank, name, (size_t)(dot - name));
    rank[dot - name] = 0;
    return number_parse(rank, &of) && number_parse(dot + 1, &worker) &&
           names_worker(of, worker, value);
}

void name_format(enum number_kind kind, unsigned value, char name[16])
{
    if (kind == NUMBER_WORKER)
        snprintf(name, 16, "%u.%u", value / WORKERS_MAX, value % WORKERS_MAX);
    else
        snprintf(name, 16, "%u", value);
}
