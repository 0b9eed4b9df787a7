#include "fs/sql/rows.h"

#include "fs/sql/table.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>

static const uint8_t lead_types[ROWS_LEAD] = {COLUMN_TEXT, COLUMN_INTEGER, COLUMN_INTEGER,
                                              COLUMN_REAL};

static uint64_t bits_of(double value)
{
    uint64_t word;

    memcpy(&word, &value, sizeof word);
    return word;
}

static void add_slot(struct rows *rows, enum column_type type)
{
    rows->types[rows->width] = type;
    rows->blank[rows->width++] = type == COLUMN_INTEGER ? (uint64_t)ROWS_NULL
                                 : type == COLUMN_REAL  ? bits_of(NAN)
                                                        : 0;
}

void rows_init(struct rows *rows, const struct table *table, uint64_t used,
               const struct rows_front *front)
{
    *rows = (struct rows){.front = front, .lead = front ? table_lead(table) : 0};
    memset(rows->slots, ROWS_UNUSED, sizeof rows->slots);
    for (unsigned i = 0; front && i < table_lead(table); i++)
        add_slot(rows, lead_types[i]);
    for (unsigned i = 0; i < table->ncolumns; i++)
        if (used >> i & 1) {
            rows->slots[i] = (uint8_t)rows->width;
            add_slot(rows, table->columns[i].type);
        }
}

static void free_texts(struct rows *rows)
{
    for (unsigned i = 0; rows->texts && i < rows->width; i++)
        texts_deinit(&rows->texts[i]);
    sqlite3_free(rows->texts);
    rows->texts = NULL;
}

void rows_deinit(struct rows *rows)
{
    free_texts(rows);
    sqlite3_free(rows->words);
    rows->words = NULL;
    rows->n = rows->alloc = 0;
}

void rows_clear(struct rows *rows)
{
    free_texts(rows);
    rows->n = 0;
    rows->error = 0;
}

static bool reserve(struct rows *rows, size_t n)
{
    size_t alloc = rows->alloc ? rows->alloc : 64;

    if (rows->error)
        return false;
    if (n > ROWS_MAX) {
        rows->error = -EFBIG;
        return false;
    }
    if (n <= rows->alloc)
        return true;
    while (alloc < n)
        alloc *= 2;
    /* a statement may use no column at all: count(*) */
    uint64_t *words = sqlite3_realloc64(rows->words, alloc * (rows->width + 1) * sizeof *words);
    if (!words) {
        rows->error = -ENOMEM;
        return false;
    }
    rows->words = words;
    rows->alloc = alloc;
    return true;
}

/* Where texts go. */
static void make_texts(struct rows *rows)
{
    size_t size = (rows->width + 1) * sizeof *rows->texts;

    if (rows->texts)
        return;
    rows->texts = sqlite3_malloc64(size);
    if (rows->texts)
        memset(rows->texts, 0, size);
}

int rows_make(struct rows *rows, size_t n)
{
    if (!n || !reserve(rows, n))
        return rows->error;
    make_texts(rows);
    if (!rows->texts)
        return rows->error = -ENOMEM;
    memset(rows->words, 0, n * rows->width * sizeof *rows->words);
    rows->n = n;
    return 0;
}

/* Before the first row: where texts go, and what stands in front. */
static bool begin(struct rows *rows)
{
    make_texts(rows);
    if (rows->texts && rows->front) {
        const struct rows_front *front = rows->front;
        rows->blank[0] = texts_add(&rows->texts[0], front->host, strlen(front->host));
        rows->blank[1] = (uint64_t)front->pid;
        rows->blank[2] = (uint64_t)front->rank;
        if (rows->lead == ROWS_LEAD)
            rows->blank[3] = bits_of(front->ended);
    }
    if (!rows->texts || (rows->front && !rows->blank[0]))
        rows->error = -ENOMEM;
    return !rows->error;
}

void rows_add(struct rows *rows)
{
    if (!reserve(rows, rows->n + 1) || (!rows->n && !begin(rows)))
        return;
    memcpy(&rows->words[rows->n++ * rows->width], rows->blank, rows->width * sizeof *rows->blank);
}

/* The word of a column in the last row; NULL: it isn't kept, or of another type. */
static uint64_t *last(struct rows *rows, unsigned column, enum column_type type)
{
    unsigned slot = rows->slots[column];

    if (rows->error || !rows->n || slot == ROWS_UNUSED || rows->types[slot] != type)
        return NULL;
    return &rows->words[(rows->n - 1) * rows->width + slot];
}

void rows_integer(struct rows *rows, unsigned column, int64_t value)
{
    uint64_t *word = last(rows, column, COLUMN_INTEGER);
    if (word)
        *word = (uint64_t)value;
}

void rows_real(struct rows *rows, unsigned column, double value)
{
    uint64_t *word = last(rows, column, COLUMN_REAL);
    if (word)
        *word = bits_of(value);
}

void rows_bytes(struct rows *rows, unsigned column, const char *bytes, size_t size)
{
    uint64_t *word = last(rows, column, COLUMN_TEXT);

    if (!word || size > INT32_MAX)
        return;
    *word = texts_add(&rows->texts[rows->slots[column]], bytes, size);
    if (!*word)
        rows->error = -ENOMEM;
}

void rows_take(struct rows *rows, unsigned column, struct text *text)
{
    rows_bytes(rows, column, text->data ? text->data : "", text->size);
    text_clear(text);
}

void rows_text(struct rows *rows, unsigned column, const char *value)
{
    if (value && rows->slots[column] != ROWS_UNUSED)
        rows_bytes(rows, column, value, strlen(value));
}

/* ---- appending ---- */

/* Makes the texts of a slot of `from` those of these rows, in the n rows that
 * were copied to `words`. */
static int renumber(struct rows *rows, unsigned slot, const struct texts *from, uint64_t *words,
                    size_t n)
{
    uint32_t *numbers = sqlite3_malloc64((from->n + 1) * sizeof *numbers);
    if (!numbers)
        return -ENOMEM;
    numbers[0] = 0;
    for (uint32_t i = 1; i <= from->n; i++) {
        const struct texts_item *item = texts_get(from, i);
        numbers[i] = texts_add(&rows->texts[slot], item->bytes, item->size);
        if (!numbers[i]) {
            sqlite3_free(numbers);
            return -ENOMEM;
        }
    }
    for (size_t i = 0; i < n; i++)
        words[i * rows->width + slot] = numbers[words[i * rows->width + slot]];
    sqlite3_free(numbers);
    return 0;
}

static void take_over(struct rows *rows, struct rows *from)
{
    rows_deinit(rows);
    rows->words = from->words;
    rows->texts = from->texts;
    rows->n = from->n;
    rows->alloc = from->alloc;
    from->words = NULL;
    from->texts = NULL;
}

void rows_append(struct rows *rows, struct rows *from)
{
    if (from->error && !rows->error)
        rows->error = from->error;
    if (!rows->n && !rows->error) {
        take_over(rows, from);
    } else if (from->n && reserve(rows, rows->n + from->n)) {
        uint64_t *words = &rows->words[rows->n * rows->width];
        memcpy(words, from->words, from->n * from->width * sizeof *words);
        for (unsigned i = 0; i < rows->width && !rows->error; i++)
            if (rows->types[i] == COLUMN_TEXT)
                rows->error = renumber(rows, i, &from->texts[i], words, from->n);
        if (!rows->error)
            rows->n += from->n;
    }
    rows_deinit(from);
}

/* ---- copying what isn't believed ---- */

static int copy_word(struct rows *rows, unsigned column, const struct rows *from, size_t row)
{
    unsigned slot = from->slots[column];
    uint64_t word = rows_word(from, row, slot);

    if (from->types[slot] != COLUMN_TEXT) {
        *last(rows, column, from->types[slot]) = word;
    } else if (word) {
        if (word > from->texts[slot].n)
            return -EPROTO;
        const struct texts_item *item = texts_get(&from->texts[slot], (uint32_t)word);
        rows_bytes(rows, column, item->bytes, item->size);
    }
    return rows->error;
}

int rows_copy(struct rows *rows, const struct table *table, const struct rows *from)
{
    int r = from->error;

    for (size_t i = 0; r == 0 && i < from->n; i++) {
        rows_add(rows);
        r = rows->error;
        for (unsigned k = 0; r == 0 && k < table->ncolumns; k++)
            if (from->slots[k] != ROWS_UNUSED)
                r = copy_word(rows, k, from, i);
    }
    return r;
}
