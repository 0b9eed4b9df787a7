#include "contrib/web/server.h"

#include "agent/base/cleanup.h"
#include "contrib/listen.h"
#include "contrib/web/files.h"
#include "contrib/web/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define BODY_MAX (1u << 20) /* bytes that may be written at once, as to the file itself */
#define CONNECTIONS_MAX 64  /* a page has six at most */
#define IDLE_S 15           /* a connection that asks nothing is closed after so long */
#define ALIVE_MS 10000 /* a stream says so often that it is there, by which it sees who isn't */
#define STREAM_BLOCK (64u << 10) /* bytes of a stream that are sent at once */
#define LINE_ADDS 8              /* bytes that a line gains in a stream, at most */

struct request {
    char *body;
    size_t size; /* of what was sent, also where it is more than BODY_MAX and none of it is kept */
};

struct stream {
    int fd;         /* of events; -1: it only says that it is there */
    int client;     /* the connection, not ours to close */
    bool is_inside; /* a line has begun */
    bool has_begun;
    struct visits *visits; /* of the visit that it is; NULL: it is none */
    struct visit *visit;
};

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned code,
                                     struct MHD_Response *response, const char *type)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "
                                    "connect-src 'self'; img-src 'self'; "
                                    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
    };

    if (!response)
        return MHD_NO;
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    MHD_add_response_header(response, "Content-Type", type);
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_words(struct MHD_Connection *connection, unsigned code,
                                  const char *words)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(words), (void *)words, MHD_RESPMEM_MUST_COPY);
    return send_response(connection, code, response, "text/plain; charset=utf-8");
}

static unsigned status_of(int error)
{
    switch (error) {
    case 0: return MHD_HTTP_OK;
    case ENOENT:
    case ENOTDIR: return MHD_HTTP_NOT_FOUND;
    case ESRCH: return MHD_HTTP_GONE;
    case EACCES:
    case EPERM:
    case EXDEV: /* a path that leaves the mount */
    case ELOOP: return MHD_HTTP_FORBIDDEN;
    case EBUSY: return MHD_HTTP_CONFLICT;
    case EFBIG: return MHD_HTTP_CONTENT_TOO_LARGE;
    case EAGAIN:
    case ENODEV: return MHD_HTTP_SERVICE_UNAVAILABLE;
    case ETIMEDOUT: return MHD_HTTP_GATEWAY_TIMEOUT;
    default: return MHD_HTTP_UNPROCESSABLE_CONTENT; /* EINVAL, EIO: the words say what was wrong */
    }
}

/* Sends what the file could not say itself, since it could not be opened. */
static enum MHD_Result send_refusal(struct MHD_Connection *connection, const struct server *server,
                                    const char *path, int error)
{
    char words[1024];

    switch (error) {
    case ENODEV:
        snprintf(words, sizeof words, "No probefs is mounted on %s. Start it: probefs %s\n",
                 server->mount, server->mount);
        break;
    case ENOENT:
        snprintf(words, sizeof words, "There is no %.500s: the process or thread may have ended.\n",
                 path);
        break;
    case EACCES:
    case EPERM:
        snprintf(words, sizeof words,
                 "You may not do that with %.500s (%s). See the errors of the process.\n", path,
                 strerrorname_np(error));
        break;
    case EXDEV:
    case ELOOP: snprintf(words, sizeof words, "That is not a path within the mount.\n"); break;
    default: snprintf(words, sizeof words, "%.500s: %s\n", path, strerrordesc_np(error));
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(words), words, MHD_RESPMEM_MUST_COPY);
    if (response)
        MHD_add_response_header(response, "X-Probe-Errno", strerrorname_np(error));
    return send_response(connection, status_of(error), response, "text/plain; charset=utf-8");
}

static int client_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

static enum MHD_Result answer_file(const struct server *server, struct MHD_Connection *connection,
                                   const struct question *question)
{
    struct answer answer;

    /* a command may take as long as it likes; when it has come back, time counts from then on */
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    files_ask(question, client_of(connection), &answer);
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_S);
    if (!answer.text && answer.error)
        return send_refusal(connection, server, question->path, answer.error);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer.size, answer.text, MHD_RESPMEM_MUST_FREE);
    if (response && answer.error)
        MHD_add_response_header(response, "X-Probe-Errno", strerrorname_np(answer.error));
    if (response && answer.is_cut)
        MHD_add_response_header(response, "X-Probe-Cut", "only the first 64 MiB");
    return send_response(connection, status_of(answer.error), response,
                         ends_with(question->path, ".csv") ? "text/csv; charset=utf-8"
                                                           : "text/plain; charset=utf-8");
}

static enum MHD_Result answer_on_visit(struct server *server, struct MHD_Connection *connection,
                                       struct question *question, const char *visit)
{
    struct visit_file *file;

    int r = visit_file(&server->visits, visit, server->mount, question->path, &file);
    if (r == -ESTALE)
        return send_words(connection, MHD_HTTP_GONE,
                          "This page has lost its server: load it again.\n");
    if (r < 0)
        return send_refusal(connection, server, question->path, -r);
    question->kept = file->fd;
    enum MHD_Result result = answer_file(server, connection, question);
    visit_file_done(&server->visits, file);
    return result;
}

/* Makes of each line of the file an event. A line may come in pieces, and no more of it is read
 * than fits. */
static ssize_t stream_read(void *arg, uint64_t position, char *out, size_t max)
{
    struct stream *stream = arg;
    struct pollfd fds[] = {{.fd = stream->fd, .events = POLLIN},
                           {.fd = stream->client, .events = POLLRDHUP}};
    char piece[STREAM_BLOCK / LINE_ADDS];
    size_t size = 0;

    int ready = poll(fds, ARRAY_SIZE(fds), stream->visit && !stream->has_begun ? 0 : ALIVE_MS);
    stream->has_begun = true;
    if (ready < 0)
        return 0;
    if (fds[1].revents || max < LINE_ADDS)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (ready == 0 && !stream->is_inside)
        return snprintf(out, max, ": still here\n\n");
    size_t room = max / LINE_ADDS < sizeof piece ? max / LINE_ADDS : sizeof piece;
    ssize_t n = read(stream->fd, piece, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return MHD_CONTENT_READER_END_OF_STREAM;
    for (ssize_t i = 0; i < n; i++) {
        if (!stream->is_inside)
            size += (size_t)sprintf(out + size, "data: ");
        stream->is_inside = piece[i] != '\n';
        out[size++] = piece[i];
        if (!stream->is_inside)
            out[size++] = '\n';
    }
    return (ssize_t)size;
}

static void stream_end(void *arg)
{
    struct stream *stream = arg;

    if (stream->visit)
        visit_leave(stream->visits, stream->visit);
    else
        close(stream->fd);
    free(stream);
}

static enum MHD_Result send_stream(struct MHD_Connection *connection, const struct stream *made)
{
    struct stream *stream = malloc(sizeof *stream);

    if (!stream)
        return MHD_NO;
    *stream = *made;
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN,
                                                                      STREAM_BLOCK, stream_read,
                                                                      stream, stream_end);
    if (!response) {
        stream_end(stream);
        return MHD_NO;
    }
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return send_response(connection, MHD_HTTP_OK, response, "text/event-stream");
}

static enum MHD_Result answer_events(const struct server *server, struct MHD_Connection *connection,
                                     const char *path)
{
    int fd = files_open(server->mount, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return send_refusal(connection, server, path, -fd);
    return send_stream(connection, &(struct stream){.fd = fd, .client = client_of(connection)});
}

static enum MHD_Result answer_visit(struct server *server, struct MHD_Connection *connection,
                                    const char *name)
{
    struct visit *visit = visit_begin(&server->visits, name);

    if (!visit)
        return send_words(connection, MHD_HTTP_CONFLICT, "There is a page of that name.\n");
    return send_stream(connection, &(struct stream){.fd = -1,
                                                    .client = client_of(connection),
                                                    .visits = &server->visits,
                                                    .visit = visit});
}

static enum MHD_Result answer_page(struct MHD_Connection *connection, const char *url)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *name = strcmp(url, "/") ? url + 1 : "index.html",
               *type = "text/plain; charset=utf-8";

    for (const struct page *page = pages; page->name; page++) {
        if (strcmp(page->name, name))
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(types); i++)
            if (ends_with(name, types[i][0]))
                type = types[i][1];
        return send_response(connection, MHD_HTTP_OK,
                             MHD_create_response_from_buffer((size_t)(page->end - page->data),
                                                             (void *)page->data,
                                                             MHD_RESPMEM_PERSISTENT),
                             type);
    }
    return send_words(connection, MHD_HTTP_NOT_FOUND, "There is no such page.\n");
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Takes as long for a wrong token as for the right one. */
static bool is_token(const struct server *server, const char *given)
{
    unsigned char differs = 0;

    if (!given || strncmp(given, "Bearer ", 7) || strlen(given + 7) != strlen(server->token))
        return false;
    for (size_t i = 0; server->token[i]; i++)
        differs |= (unsigned char)(given[7 + i] ^ server->token[i]);
    return !differs;
}

/* Whether a name, perhaps with a port, is this machine's for itself. The port is not looked at: it
 * may be another one's, where ssh forwards. */
static bool is_this_machine(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; host && i < ARRAY_SIZE(names); i++) {
        size_t n = strlen(names[i]);
        if (!strncmp(host, names[i], n) && (!host[n] || host[n] == ':'))
            return true;
    }
    return false;
}

/* Why it isn't answered, and the status in *code; NULL: it is. */
static const char *refusal(const struct server *server, struct MHD_Connection *connection,
                           const char *url, const char *method, unsigned *code)
{
    const char *host = header(connection, "Host"), *origin = header(connection, "Origin");
    const char *site = header(connection, "Sec-Fetch-Site");
    bool is_read = !strcmp(method, MHD_HTTP_METHOD_GET);

    *code = MHD_HTTP_FORBIDDEN;
    if (server->is_local && !listen_is_own(client_of(connection)))
        return "This is another user's.\n";
    *code = MHD_HTTP_MISDIRECTED_REQUEST; /* a name that somebody has lead here (DNS rebinding) */
    if (!is_this_machine(host))
        return "This server is asked as localhost or 127.0.0.1 only.\n";
    *code = MHD_HTTP_METHOD_NOT_ALLOWED;
    if (!is_read && strcmp(method, MHD_HTTP_METHOD_POST))
        return "There are GET and POST.\n";
    if (strncmp(url, "/probe/", 7) && (!is_read || strncmp(url, "/visit/", 7)))
        return is_read ? NULL : "There is only GET of a page.\n";
    *code = MHD_HTTP_FORBIDDEN;
    if ((site && strcmp(site, "same-origin") && strcmp(site, "none")) ||
        (origin && (strncmp(origin, "http://", 7) || strcmp(origin + 7, host))))
        return "Other sites may not ask this server.\n";
    *code = MHD_HTTP_UNAUTHORIZED;
    if (!is_token(server, header(connection, "Authorization")))
        return "Open the link that probefs-web printed when it was started: it has the token.\n";
    return NULL;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    struct server *server = arg;
    struct request *request = *state;
    unsigned code;

    if (!request) {
        const char *why = refusal(server, connection, url, method, &code);
        if (why)
            return send_words(connection, code, why); /* before a byte of the body is taken */
        request = *state = calloc(1, sizeof *request);
        return request ? MHD_YES : MHD_NO;
    }
    if (*upload_size) {
        request->size += *upload_size;
        char *larger = request->size <= BODY_MAX ? realloc(request->body, request->size) : NULL;
        if (larger) {
            memcpy(larger + request->size - *upload_size, upload, *upload_size);
            request->body = larger;
        } else {
            request->size = BODY_MAX + 1;
        }
        *upload_size = 0;
        return MHD_YES;
    }
    if (!strncmp(url, "/visit/", 7))
        return answer_visit(server, connection, url + 7);
    if (strncmp(url, "/probe/", 7))
        return answer_page(connection, url);
    if (request->size > BODY_MAX)
        return send_words(connection, MHD_HTTP_CONTENT_TOO_LARGE, "At most 1 MiB at once.\n");
    bool is_read = !strcmp(method, MHD_HTTP_METHOD_GET);
    if (is_read && ends_with(url, "/events"))
        return answer_events(server, connection, url + 7);
    struct question question = {
        .mount = server->mount,
        .path = url + 7,
        .body = is_read         ? NULL
                : request->body ? request->body
                                : "",
        .size = request->size,
        .appends = MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND, "append", 6,
                                                 NULL, NULL) == MHD_YES,
    };
    const char *visit = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "visit");
    if (is_read || !visit)
        return answer_file(server, connection, &question);
    return answer_on_visit(server, connection, &question, visit);
}

static void forget(void *arg, struct MHD_Connection *connection, void **state,
                   enum MHD_RequestTerminationCode why)
{
    struct request *request = *state;

    if (request)
        free(request->body);
    free(request);
    *state = NULL;
}

struct MHD_Daemon *server_start(struct server *server, int listening)
{
    return MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                                MHD_USE_POLL,
                            0, NULL, NULL, answer, server, MHD_OPTION_LISTEN_SOCKET, listening,
                            MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)IDLE_S, MHD_OPTION_END);
}
