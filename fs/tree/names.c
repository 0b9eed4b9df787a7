#include "fs/tree/names.h"

#include "fs/process/process.h"

#include <errno.h>
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

void numbers_deinit(struct numbers *numbers)
{
    for (size_t i = 0; i < numbers->n; i++) {
        process_unref(numbers->items[i].process);
        free(numbers->items[i].word);
    }
    free(numbers->items);
    *numbers = (struct numbers){0};
}
