#include "fs/owner/rings.h"

#include <errno.h>
#include <string.h>

int rings_take(const struct owner_request *request, struct recording *recording)
{
    int r = 0;

    for (uint32_t i = 0; (r == 0 || r == -EPROTO) && i < request->nrings; i++)
        r = recording_take_ring(recording, request->rings[i].table, request->rings[i].fd);
    return r == -EPROTO ? 0 : r;
}

static int read_question(const struct owner_request *request, const char *more,
                         struct ring_ask *asks)
{
    size_t n = request->call.value;

    if (n > RING_COPIES_MAX || request->more != n * sizeof *asks)
        return -EPROTO;
    memcpy(asks, more, n * sizeof *asks);
    for (size_t i = 0; i < n; i++)
        if (asks[i].table >= RECORDED_TABLES)
            return -EPROTO;
    return 0;
}

int rings_question_answer(const struct owner_request *request, const char *more,
                          struct owner_answer *answer)
{
    struct ring_ask asks[RING_COPIES_MAX];
    struct recording *recording = NULL;

    int r = read_question(request, more, asks);
    if (r == 0)
        r = recording_new(&recording);
    if (r == 0)
        r = rings_take(request, recording);
    if (r == 0)
        r = recording_write_copies(recording, asks, request->call.value, &answer->text);
    recording_unref(recording);
    return answer->error = r;
}
