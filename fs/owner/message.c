#include "fs/owner/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define ERROR_MAX 4095 /* as the kernel's MAX_ERRNO */

/* A name as it is sent, without padding; its word follows. */
struct name_head {
    uint32_t entry, value, word;
};

/* ---- with a descriptor ---- */

union passing {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int owner_send(int fd, const void *message, size_t size, int passed)
{
    union passing passing = {.head = {.cmsg_level = SOL_SOCKET,
                                      .cmsg_type = SCM_RIGHTS,
                                      .cmsg_len = CMSG_LEN(sizeof passed)}};
    struct iovec io = {(void *)message, size};
    struct msghdr head = {.msg_iov = &io, .msg_iovlen = 1};

    memcpy(CMSG_DATA(&passing.head), &passed, sizeof passed);
    if (passed >= 0) {
        head.msg_control = &passing;
        head.msg_controllen = sizeof passing;
    }
    /* who has stopped the other end fills the socket: nobody waits for that */
    return sendmsg(fd, &head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Receives one message of at most that size, and what came with it into head->msg_control. */
static ssize_t receive(int fd, void *message, size_t size, struct msghdr *head)
{
    struct iovec io = {message, size};
    ssize_t n;

    head->msg_iov = &io;
    head->msg_iovlen = 1;
    do
        n = recvmsg(fd, head, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    return n;
}

int owner_receive(int fd, void *message, size_t size, int *passed)
{
    union passing passing = {0};
    struct msghdr head = {.msg_control = &passing, .msg_controllen = sizeof passing};

    *passed = -1;
    ssize_t n = receive(fd, message, size, &head);
    const struct cmsghdr *control = n > 0 ? CMSG_FIRSTHDR(&head) : NULL;
    if (control && control->cmsg_type == SCM_RIGHTS)
        memcpy(passed, CMSG_DATA(control), sizeof *passed);
    return n <= 0 ? -EIO : (size_t)n == size ? 0 : -EPROTO;
}

/* ---- requests ---- */

union rings {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(RECORDED_TABLES * sizeof(int))];
};

int owner_request_send(int fd, const struct owner_request *request)
{
    int fds[RECORDED_TABLES];
    union rings rings = {.head = {.cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SCM_RIGHTS,
                                  .cmsg_len = CMSG_LEN(request->nrings * sizeof *fds)}};
    struct iovec io = {(void *)request, sizeof *request + request->more};
    struct msghdr head = {.msg_iov = &io, .msg_iovlen = 1};

    for (uint32_t i = 0; i < request->nrings; i++)
        fds[i] = request->rings[i].fd;
    if (request->nrings) {
        memcpy(CMSG_DATA(&rings.head), fds, request->nrings * sizeof *fds);
        head.msg_control = &rings;
        head.msg_controllen = CMSG_SPACE(request->nrings * sizeof *fds);
    }
    return sendmsg(fd, &head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Takes what came with a message into request->rings. How many there are. */
static uint32_t take_rings(struct msghdr *head, struct owner_request *request)
{
    const struct cmsghdr *control = CMSG_FIRSTHDR(head);
    uint32_t n = 0;

    if (control && control->cmsg_type == SCM_RIGHTS)
        n = (uint32_t)((control->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    for (uint32_t i = 0; i < n; i++)
        memcpy(&request->rings[i].fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
    return n;
}

static bool is_sane_request(const struct owner_request *request, size_t size)
{
    for (uint32_t i = 0; i < request->nrings; i++)
        if (request->rings[i].table >= RECORDED_TABLES)
            return false;
    return size == sizeof *request + request->more && request->call.entry < layout_size &&
           request->call.child < layout_size;
}

bool owner_request_receive(int fd, struct owner_request *out)
{
    union rings rings = {0};
    struct msghdr head = {.msg_control = &rings, .msg_controllen = sizeof rings};

    ssize_t n = receive(fd, out, OWNER_PIECE, &head);
    uint32_t said = n < (ssize_t)sizeof *out ? 0 : out->nrings;
    out->nrings = n > 0 ? take_rings(&head, out) : 0;
    if (n >= (ssize_t)sizeof *out && said == out->nrings && is_sane_request(out, (size_t)n))
        return true;
    owner_request_close(out);
    return false;
}

void owner_request_close(struct owner_request *request)
{
    while (request->nrings)
        close(request->rings[--request->nrings].fd);
}

/* ---- sending ---- */

static void add_names(const struct owner_answer *answer, struct text *out)
{
    for (size_t i = 0; i < answer->nnames; i++) {
        const struct number *number = &answer->names[i].number;
        const struct name_head head = {
            .entry = answer->names[i].entry,
            .value = number->value,
            .word = number->word ? (uint32_t)strlen(number->word) : 0,
        };
        text_add(out, (const char *)&head, sizeof head);
        if (head.word)
            text_add(out, number->word, head.word);
    }
}

/* Sends all that is in the parts, which are used up. */
static int send_parts(int fd, struct iovec *parts, size_t n)
{
    struct iovec piece[8];

    while (n) {
        size_t used = 0, room = OWNER_PIECE;
        for (size_t i = 0; i < n && room; i++) {
            if (!parts[i].iov_len)
                continue;
            size_t size = parts[i].iov_len < room ? parts[i].iov_len : room;
            piece[used++] = (struct iovec){parts[i].iov_base, size};
            room -= size;
        }
        const struct msghdr message = {.msg_iov = piece, .msg_iovlen = used};
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        for (size_t left = (size_t)sent; n; parts++, n--) {
            size_t size = parts->iov_len < left ? parts->iov_len : left;
            if (!parts->iov_len)
                continue;
            parts->iov_base = (char *)parts->iov_base + size;
            parts->iov_len -= size;
            left -= size;
            if (parts->iov_len)
                break;
        }
    }
    return 0;
}

int owner_reply_send(int fd, const struct owner_answer *answer)
{
    _cleanup_(text_deinit) struct text names = TEXT_INIT;
    struct owner_reply reply = {.error = answer->error, .noted = answer->noted};
    size_t why = answer->why.size < OWNER_WHY_MAX ? answer->why.size : OWNER_WHY_MAX;

    if (answer->error == 0)
        add_names(answer, &names);
    if (names.error || names.size > OWNER_NAMES_BYTES || answer->nnames > OWNER_NAMES_MAX)
        reply.error = names.error ? -ENOMEM : -E2BIG;
    bool told = reply.error == 0;
    reply.why = (uint32_t)why;
    reply.nnames = told ? (uint32_t)answer->nnames : 0;
    reply.names = told ? (uint32_t)names.size : 0;
    reply.text = told ? answer->text.size : 0;
    struct iovec parts[] = {
        {&reply, sizeof reply},
        {answer->why.data, reply.why},
        {names.data, reply.names},
        {answer->text.data, reply.text},
    };
    return send_parts(fd, parts, ARRAY_SIZE(parts));
}

/* ---- receiving ---- */

static bool is_sane(const struct owner_reply *reply)
{
    return reply->error <= 0 && reply->error >= -ERROR_MAX && reply->noted <= 0 &&
           reply->noted >= -ERROR_MAX && reply->why <= OWNER_WHY_MAX &&
           reply->nnames <= OWNER_NAMES_MAX && reply->names <= OWNER_NAMES_BYTES &&
           reply->text <= TEXT_MAX;
}

/* Moves what belongs to one part of the reply to it. */
static void fill(struct text *part, uint64_t wants, const char **message, size_t *size)
{
    size_t n = wants - part->size < *size ? (size_t)(wants - part->size) : *size;

    if (n)
        text_add(part, *message, n);
    *message += n;
    *size -= n;
}

int owner_receipt_take(struct owner_receipt *receipt, const char *message, size_t size)
{
    struct owner_reply *reply = &receipt->reply;

    if (!size)
        return -EPROTO;
    if (!receipt->begun) {
        if (size < sizeof *reply)
            return -EPROTO;
        memcpy(reply, message, sizeof *reply);
        if (!is_sane(reply))
            return -EPROTO;
        receipt->begun = true;
        message += sizeof *reply;
        size -= sizeof *reply;
    }
    fill(&receipt->why, reply->why, &message, &size);
    fill(&receipt->names, reply->names, &message, &size);
    fill(&receipt->text, reply->text, &message, &size);
    if (receipt->why.error || receipt->names.error || receipt->text.error)
        return -ENOMEM;
    if (size)
        return -EPROTO;
    return receipt->why.size < reply->why || receipt->names.size < reply->names ||
           receipt->text.size < reply->text;
}

/* How many bytes at p a terminal would obey: control characters but tab and newline, those of C1
 * too, which are two bytes in UTF-8. */
static size_t control_length(const unsigned char *p, const unsigned char *end)
{
    if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
        return 1;
    return *p == 0xc2 && p + 1 < end && p[1] >= 0x80 && p[1] < 0xa0 ? 2 : 0;
}

void owner_drop_controls(struct text *text, int spared)
{
    unsigned char *p = (unsigned char *)text->data, *end = text->size ? p + text->size : p;

    while (p < end) {
        size_t n = 0;
        if (*p >= 0x20 && *p < 0x7f) { /* nearly all of it */
            p++;
            continue;
        }
        if (*p != spared)
            n = control_length(p, end);
        memset(p, '?', n);
        p += n ? n : 1;
    }
}

/* What a text is that isn't for people. */
static int take_text(const struct owner_call *call, struct text *text)
{
    bool blocks = call->op == OWNER_STACKS && call->value == STACKS_BLOCKS;

    /* read by what knows its form */
    if (call->op == OWNER_EXAMINE || call->op == OWNER_ROWS || call->op == OWNER_RINGS ||
        (call->op == OWNER_SAY && layout[call->entry].render == collectives_render))
        return 0;
    owner_drop_controls(text, blocks ? 0 : -1);
    return blocks && text->size && text->data[text->size - 1] ? -EPROTO : 0;
}

/* Whether the directory that was asked for has such an entry. */
static bool is_child(const struct owner_call *call, uint32_t entry)
{
    const struct entry *directory = &layout[call->entry];

    if (call->op != OWNER_LIST || entry >= layout_size)
        return false;
    for (const struct entry *e = NULL; (e = layout_next(directory, e));)
        if (e == &layout[entry])
            return true;
    return false;
}

/* Whether it can be the name of a file. */
static bool is_name(const char *word, size_t size)
{
    const unsigned char *p = (const unsigned char *)word, *end = p + size;

    if (!size || size > NAME_MAX ||
        (word[0] == '.' && (size == 1 || (size == 2 && word[1] == '.'))))
        return false;
    for (; p < end; p++)
        if (*p == '/' || *p == '\n' || *p == '\t' || control_length(p, end))
            return false;
    return true;
}

static int take_name(const struct owner_call *call, const struct name_head *head, const char *word,
                     struct owner_answer *answer)
{
    struct owner_name name = {.entry = head->entry, .number = {.value = head->value}};
    const struct naming *naming = layout[head->entry].naming;
    bool is_word = naming && name_is_word(naming->kind);

    if (is_word != (head->word > 0) || (is_word && !is_name(word, head->word)))
        return -EPROTO;
    if (is_word) {
        name.number.word = strndup(word, head->word);
        if (!name.number.word)
            return -ENOMEM;
    }
    return owner_answer_add(answer, &name);
}

static int take_names(const struct owner_receipt *receipt, struct owner_answer *answer)
{
    const char *p = receipt->names.data;
    size_t left = receipt->names.size;
    struct name_head head;

    for (uint32_t i = 0; i < receipt->reply.nnames; i++) {
        if (left < sizeof head)
            return -EPROTO;
        memcpy(&head, p, sizeof head);
        p += sizeof head;
        left -= sizeof head;
        if (head.word > left || !is_child(receipt->call, head.entry))
            return -EPROTO;
        int r = take_name(receipt->call, &head, p, answer);
        if (r < 0)
            return r;
        p += head.word;
        left -= head.word;
    }
    return left ? -EPROTO : 0;
}

/* Whether it ends, and is a word that can be shown and be a file's name. */
static bool is_word(const char *text, size_t cap)
{
    size_t n = strnlen(text, cap);

    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '/')
            return false;
    return n < cap && text[0] != '.';
}

static bool is_number(int64_t number) { return number >= -1 && number <= UINT32_MAX; }

int owner_examined_read(const struct owner_answer *answer, struct examined *out)
{
    struct owner_examined from;
    const struct membership *of = &from.membership;

    if (answer->text.size != sizeof from)
        return -EPROTO;
    memcpy(&from, answer->text.data, sizeof from);
    if (!is_number(of->rank) || !is_number(of->world) || !is_number(of->local_rank) ||
        !is_number(of->local_world) || !is_number(of->restarts) ||
        !is_word(of->job, sizeof of->job) || !is_word(of->launcher, sizeof of->launcher) ||
        !is_word(of->role, sizeof of->role) || !is_word(of->backend, sizeof of->backend) ||
        from.pid < 0 || from.pid > INT32_MAX)
        return -EPROTO;
    *out = (struct examined){
        .membership = *of,
        .agent = {.base = from.base,
                  .bias = from.bias,
                  .record_addr = from.record_addr,
                  .start_addr = from.start_addr,
                  .pid = (pid_t)from.pid},
    };
    /* anything but 0 and 1 isn't a bool, whatever it would be taken for */
    out->membership.inherited = ((const unsigned char *)&of->inherited)[0] & 1;
    out->membership.by_launcher = ((const unsigned char *)&of->by_launcher)[0] & 1;
    return 0;
}

int owner_receipt_answer(struct owner_receipt *receipt, struct owner_answer *answer)
{
    int r = take_names(receipt, answer);

    if (r == 0)
        r = take_text(receipt->call, &receipt->text);
    if (r < 0)
        return r;
    owner_drop_controls(&receipt->why, -1);
    answer->error = receipt->reply.error;
    answer->noted = receipt->reply.noted;
    answer->why = receipt->why;
    answer->text = receipt->text;
    receipt->why = receipt->text = TEXT_INIT;
    return 0;
}

void owner_receipt_deinit(struct owner_receipt *receipt)
{
    text_deinit(&receipt->why);
    text_deinit(&receipt->names);
    text_deinit(&receipt->text);
}
