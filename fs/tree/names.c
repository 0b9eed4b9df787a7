#include "fs/tree/names.h"

#include "fs/process/process.h"

#include <errno.h>
#include <stdlib.h>

int numbers_add(struct numbers *numbers, unsigned value, struct process *process)
{
    if (numbers->n == numbers->alloc) {
        size_t alloc = numbers->alloc ? numbers->alloc * 2 : 32;
        struct number *items = realloc(numbers->items, alloc * sizeof *items);
        if (!items) {
            process_unref(process);
            return -ENOMEM;
        }
        numbers->items = items;
        numbers->alloc = alloc;
    }
    numbers->items[numbers->n++] = (struct number){.value = value, .process = process};
    return 0;
}

void numbers_deinit(struct numbers *numbers)
{
    for (size_t i = 0; i < numbers->n; i++)
        process_unref(numbers->items[i].process);
    free(numbers->items);
    *numbers = (struct numbers){0};
}
