#include "fs/remote/memory/view.h"
#include "tests/unit/check.h"

#include <errno.h>

static uint8_t bytes[4096];

int main(void)
{
    struct memory_image image = {.base = 0x10000, .data = bytes, .size = sizeof bytes};
    struct memory memory = {.image = &image};
    struct view *view;
    const uint8_t *p;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    CHECK_INT(view_new(&memory, &view), 0);

    /* queued, then there; unreadable is remembered as such */
    CHECK_INT(view_get(view, 0x10010, 16, &p), -EAGAIN);
    CHECK_INT(view_get(view, 0x20000, 8, &p), -EAGAIN);
    CHECK_INT(view_fill(view), 0);
    CHECK_INT(view_get(view, 0x10010, 16, &p), 0);
    CHECK(!memcmp(p, bytes + 0x10, 16));
    CHECK_INT(view_get(view, 0x20000, 8, &p), -EFAULT);
    CHECK_INT(view_get(view, 0x10ffc, 8, &p), -EAGAIN); /* beyond the end */
    CHECK_INT(view_fill(view), 0);
    CHECK_INT(view_get(view, 0x10ffc, 8, &p), -EFAULT);

    /* parts of a piece, and pieces that overlap */
    CHECK(view_read(view, 0x10100, 512));
    p = view_read(view, 0x10180, 8);
    CHECK(p && load64(p) == load64(bytes + 0x180));
    CHECK(view_read(view, 0x10110, 1024));
    p = view_read(view, 0x10400, 8);
    CHECK(p && load64(p) == load64(bytes + 0x400));

    /* asked for many times before it is copied */
    for (int i = 0; i < 20; i++)
        CHECK_INT(view_get(view, 0x10800, 8 + i % 3, &p), -EAGAIN);
    CHECK_INT(view_fill(view), 0);
    CHECK_INT(view_get(view, 0x10800, 10, &p), 0);

    /* a change is seen by verify, and by refresh */
    CHECK_INT(view_verify(view), 0);
    bytes[0x400]++;
    CHECK_INT(view_verify(view), -EAGAIN);
    CHECK_INT(view_refresh(view), 0);
    CHECK_INT(view_get(view, 0x10400, 8, &p), 0);
    CHECK(load64(p) == load64(bytes + 0x400));
    CHECK_INT(view_verify(view), 0);

    /* what was not used since the last refresh is forgotten */
    CHECK_INT(view_refresh(view), 0);
    CHECK_INT(view_get(view, 0x10010, 16, &p), -EAGAIN);
    CHECK_INT(view_fill(view), 0);
    CHECK_INT(view_get(view, 0x10400, 8, &p), 0);

    /* while it defers, what isn't there is queued, and what is there is read */
    view_defer(view, true);
    CHECK(!view_read(view, 0x10c00, 8) && !view_read(view, 0x10c40, 8));
    CHECK(view_is_queued(view) && view_read(view, 0x10400, 8));
    CHECK_INT(view_fill(view), 0);
    CHECK(!view_is_queued(view) && view_read(view, 0x10c00, 8) && view_read(view, 0x10c40, 8));
    CHECK(!view_read(view, 0x20000, 8) && view_is_queued(view));
    CHECK_INT(view_fill(view), 0);
    CHECK(!view_read(view, 0x20000, 8) && !view_is_queued(view)); /* known to be unreadable */
    view_defer(view, false);
    CHECK(view_read(view, 0x10d00, 8));

    /* limits */
    CHECK_INT(view_get(view, 0x10000, VIEW_PIECE_MAX + 1, &p), -E2BIG);
    CHECK_INT(view_get(view, UINT64_MAX - 4, 16, &p), -E2BIG);
    view_free(view);
    return 0;
}
