#include "agent/eval/requests.h"

#include "agent/base/clock.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* With the lock. */
static struct {
    struct request slots[PROTO_REQUESTS_MAX];
    struct request tidying;        /* queued, or free */
    struct request *first, **last; /* the queue; last: where the next one is linked */
    struct request *running;       /* whose code runs, or that has just finished */
    size_t text_bytes;             /* of all texts */
} requests = {.last = &requests.first};

/* The functions up to the next rule are called with the lock held. */

/* The request of an id that came by this channel: one that is left of an earlier channel may have
 * the same id. */
static struct request *find(uint64_t id)
{
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++) {
        struct request *request = &requests.slots[i];
        if (request->state != REQUEST_FREE && request->id == id &&
            request->generation == probe_agent_record.generation)
            return request;
    }
    return NULL;
}

static struct request *find_free(void)
{
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++)
        if (requests.slots[i].state == REQUEST_FREE)
            return &requests.slots[i];
    return NULL;
}

static void queue(struct request *request)
{
    request->state = REQUEST_QUEUED;
    request->since_ns = monotonic_ns();
    request->next = NULL;
    *requests.last = request;
    requests.last = &request->next;
    pthread_cond_broadcast(&agent_changed);
}

static void unqueue(struct request *request)
{
    struct request **link = &requests.first;

    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    if (requests.last == &request->next)
        requests.last = link;
}

static void release(struct request *request)
{
    if (request->text) {
        munmap(request->text, request->eval.text_size);
        requests.text_bytes -= request->eval.text_size;
    }
    if (requests.running == request)
        requests.running = NULL;
    *request = (struct request){.state = REQUEST_FREE};
}

/* Takes back a request that has not begun: nobody else will answer it. False: it has begun. */
static bool take_back(struct request *request)
{
    switch (request->state) {
    case REQUEST_QUEUED:
        unqueue(request);
        release(request);
        return true;
    case REQUEST_ARRIVING: release(request); return true;
    case REQUEST_TAKEN: /* its thread finds out once it has the GIL */
        request->answered = true;
        return true;
    default: return false;
    }
}

static int map_text(struct request *request)
{
    size_t size = request->eval.text_size;
    if (!size)
        return 0;
    if (size > REQUESTS_TEXT_MAX - requests.text_bytes)
        return -EBUSY;
    void *text = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (text == MAP_FAILED)
        return -ENOMEM;
    request->text = text;
    requests.text_bytes += size;
    return 0;
}

static int append(struct request *request, const uint8_t *data, size_t size, bool *queued)
{
    if (size > request->eval.text_size - request->have)
        return -EPROTO;
    if (size)
        memcpy(request->text + request->have, data, size);
    request->have += size;
    *queued = request->have == request->eval.text_size;
    if (*queued)
        queue(request);
    return 0;
}

/* -EPROTO: the id was used before; else as requests_eval(). */
static int make(uint64_t id, uint16_t op, struct request **out)
{
    if (find(id))
        return -EPROTO;
    if (agent_life.ending)
        return -ESHUTDOWN;
    if (agent_life.detaching)
        return -EBUSY;
    struct request *request = find_free();
    if (!request)
        return -EBUSY;
    *request = (struct request){
        .state = REQUEST_ARRIVING, .op = op, .id = id, .generation = probe_agent_record.generation};
    *out = request;
    return 0;
}

void requests_interrupt(struct request *request)
{
    if (!request->interrupted)
        request->interrupted_ns = monotonic_ns();
    request->interrupted = true;
}

struct request *requests_now(void) { return requests.running; }

struct request *requests_now_of(uint64_t id)
{
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++)
        if (requests.slots[i].state == REQUEST_RUNNING && requests.slots[i].id == id)
            return &requests.slots[i];
    return NULL;
}

struct request *requests_now_to_raise(void)
{
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++) {
        struct request *request = &requests.slots[i];
        if (request->state != REQUEST_RUNNING || !request->interrupted || request->raised)
            continue;
        request->raised = true;
        return request;
    }
    return NULL;
}

void requests_leave_behind(void) { requests.running = NULL; }

size_t requests_text_bytes(void) { return requests.text_bytes; }

/* -- */

int requests_eval(const struct wire_frame *frame, bool *queued)
{
    struct proto_eval eval;
    struct request *request;

    *queued = false;
    memcpy(&eval, frame->body, sizeof eval);
    if (eval.text_size > PROTO_TEXT_MAX || eval.output_max > PROTO_OUTPUT_MAX)
        return -EPROTO;
    _guard_agent_;
    int r = make(frame->header.id, frame->header.op, &request);
    if (r < 0)
        return r;
    request->eval = eval;
    r = map_text(request);
    if (!r)
        r = append(request, frame->body + sizeof eval, wire_body_size(frame) - sizeof eval, queued);
    if (r < 0)
        release(request);
    return r;
}

int requests_text(const struct wire_frame *frame, bool *queued)
{
    *queued = false;
    _guard_agent_;
    struct request *request = find(frame->header.id);
    if (!request) /* cancelled or refused meanwhile */
        return 0;
    if (request->state != REQUEST_ARRIVING)
        return request->answered ? 0 : -EPROTO;
    return append(request, frame->body, wire_body_size(frame), queued);
}

int requests_order(uint16_t op, uint64_t id, const void *body, size_t size, int64_t interp,
                   uint64_t gil_interval)
{
    struct request *request;

    _guard_agent_;
    int r = make(id, op, &request);
    if (r < 0)
        return r;
    memcpy(&request->armed, body, size); /* the longest of them */
    request->eval.gil_interval = gil_interval;
    request->eval.interp = interp;
    queue(request);
    return 0;
}

int requests_detach(uint64_t id)
{
    struct request *request;

    _guard_agent_;
    bool ending = agent_life.ending;
    agent_life.ending = false; /* leaving is possible then, too: there is just less to give up */
    int r = make(id, PROTO_DETACH, &request);
    agent_life.ending = ending;
    if (r < 0)
        return r;
    agent_life.detaching = true;
    queue(request);
    return 0;
}

void requests_tidy(void)
{
    _guard_agent_;
    if (requests.tidying.state == REQUEST_FREE)
        queue(&requests.tidying);
}

bool requests_untidy(void)
{
    _guard_agent_;
    return requests.tidying.state != REQUEST_FREE;
}

bool requests_undone(void)
{
    _guard_agent_;
    bool undone = requests.tidying.state != REQUEST_FREE;
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++)
        undone |= requests.slots[i].state > REQUEST_ARRIVING;
    return undone;
}

bool requests_forsaken(const struct request *request)
{
    _guard_agent_;
    return request->generation != probe_agent_record.generation || !channel_is_greeted();
}

enum cancelled requests_cancel(uint64_t id, uint16_t *op)
{
    _guard_agent_;
    struct request *request = find(id);
    if (!request || request->answered)
        return CANCELLED_UNKNOWN;
    *op = request->op;
    if (take_back(request)) {
        if (*op == PROTO_DETACH)
            agent_life.detaching = false;
        return CANCELLED_BEFORE;
    }
    if (request->state != REQUEST_RUNNING || *op == PROTO_DETACH)
        return CANCELLED_UNKNOWN;
    requests_interrupt(request);
    return CANCELLED_RUNNING;
}

uint64_t requests_drop_one(void)
{
    _guard_agent_;
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++) {
        struct request *request = &requests.slots[i];
        uint64_t id = request->id;
        if (request->op != PROTO_DETACH && !request->answered && take_back(request))
            return id;
    }
    return 0;
}

void requests_abandon(void)
{
    _guard_agent_;
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++) {
        struct request *request = &requests.slots[i];
        uint16_t op = request->op;
        if (!request->answered && take_back(request) && op == PROTO_DETACH)
            agent_life.detaching = false;
        else if (request->state == REQUEST_RUNNING)
            requests_interrupt(request);
    }
}

uint64_t requests_running(void)
{
    _guard_agent_;
    const struct request *running = requests.running;
    return running && running->op != PROTO_DETACH && running->state == REQUEST_RUNNING ? running->id
                                                                                       : 0;
}

uint64_t requests_overdue(void)
{
    const struct request *running = requests.running;
    if (!running || running->op == PROTO_DETACH || running->state != REQUEST_RUNNING ||
        !running->interrupted)
        return 0;
    return monotonic_ns() - running->interrupted_ns;
}

bool requests_wait(uint64_t ns)
{
    uint64_t end = monotonic_ns() + ns;
    struct timespec until = timespec_of(end);

    _guard_agent_;
    while (!requests.first && !agent_life.detached && !agent_life.ending)
        if (pthread_cond_clockwait(&agent_changed, &agent_lock, CLOCK_MONOTONIC, &until))
            return false;
    return true;
}

struct request *requests_take(bool has_state)
{
    _guard_agent_;
    while (!requests.first && !agent_life.detached && !(agent_life.ending && has_state))
        pthread_cond_wait(&agent_changed, &agent_lock);
    struct request *request = requests.first;
    if (agent_life.detached || (agent_life.ending && has_state) || !request)
        return NULL;
    unqueue(request);
    request->state = REQUEST_TAKEN;
    return request;
}

bool requests_begin(struct request *request)
{
    _guard_agent_;
    if (request->answered || (agent_life.ending && request->op != PROTO_DETACH))
        return false;
    request->state = REQUEST_RUNNING;
    request->runner = pthread_self();
    requests.running = request;
    return true;
}

bool requests_finish(struct request *request)
{
    _guard_agent_;
    request->state = REQUEST_FINISHING;
    return request->interrupted;
}

void requests_settle(const struct request *request)
{
    _guard_agent_;
    while (request->striking)
        pthread_cond_wait(&agent_changed, &agent_lock);
}

bool requests_claim(struct request *request)
{
    _guard_agent_;
    bool mine = !request->answered;
    request->answered = true;
    return mine;
}

void requests_free(struct request *request)
{
    _guard_agent_;
    release(request);
}

void requests_forget(void)
{
    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++)
        if (requests.slots[i].text)
            munmap(requests.slots[i].text, requests.slots[i].eval.text_size);
    memset(&requests, 0, sizeof requests);
    requests.last = &requests.first;
}
