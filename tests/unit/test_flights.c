/* A recorded table takes one .sql: what is generated from tables/flights.sql
 * writes its rows and reads them. */
#include "agent/base/clock.h"
#include "fs/sql/engine.h"
#include "fs/tables/recorded.h"
#include "tests/unit/check.h"

#include <math.h>

#include "colours.h"
#include "colours_rows.h"

extern const struct tables colours_tables;

static int provide(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                   struct text *why)
{
    CHECK_INT(n, 1);
    CHECK_STR(wanted[0]->table->source, "recorded");
    CHECK_INT(wanted[0]->table->recorded, RECORDED_FLIGHTS);
    rows_init(&wanted[0]->rows, wanted[0]->table, wanted[0]->use.columns, NULL);
    return recorded_add(arg, wanted[0]->table, &wanted[0]->use, NULL, stop, &wanted[0]->rows);
}

static void gives(struct ring_reader *ring, const char *sql, const char *want)
{
    const struct provider from = {.tables = &colours_tables, .fill = provide, .arg = ring};
    struct text out = TEXT_INIT;
    struct engine *engine;
    size_t end;

    CHECK_INT(engine_open(&from, NULL, &engine), 0);
    CHECK_INT(engine_prepare(engine, sql, strlen(sql), &end), SQL_READY);
    CHECK_INT(engine_run(engine, FORMAT_CSV, &out), 0);
    CHECK_STR(out.data, want);
    engine_close(engine);
    text_deinit(&out);
}

int main(void)
{
    const struct ring_layout *layout = &recorded_layouts[RECORDED_FLIGHTS];
    struct flights_row flight = {.ts = 1.5, .number = 1, .from_place = {"Ulm", 3}, .height = NAN};
    struct ring_ticket ticket;
    struct ring_reader *reader;
    struct ring *ring;

    CHECK_INT(ring_new(layout, RING_SIZE_MIN, 0, &ring), 0);
    CHECK(flights_append(ring, &flight, &ticket));
    CHECK(flights_patch_height(ring, &ticket, 12.5));
    flight = (struct flights_row){
        .ts = 2.5, .number = 2, .from_place = {"Bonn", 4}, .to_place = {"Ulm", 3}, .height = NAN};
    CHECK(flights_append(ring, &flight, NULL));
    CHECK_INT(ring_reader_open(ring->fd, layout, &reader), 0);
    gives(reader, "SELECT * FROM flights",
          "ts,number,from_place,to_place,height\n1.5,1,Ulm,,12.5\n2.5,2,Bonn,Ulm,\n");
    gives(reader, "SELECT number FROM python.flights WHERE ts > 2 AND to_place = 'Ulm'",
          "number\n2\n");
    ring_reader_unref(reader);
    ring_free(ring);
    return 0;
}
