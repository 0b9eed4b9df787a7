/* Requests: what a client asks, and is answered. */
#pragma once

#include "contrib/dap/files.h"

struct session;

/* One request: its answer's body, new; NULL: *why, the caller's, has the words. */
typedef json_t *request_run(struct session *session, const json_t *arguments, char **why);
/* What is done after it was answered. */
typedef void request_after(struct session *session, const json_t *arguments);

/* Fails with words, made as by printf(3). Always NULL. */
json_t *request_fail(char **why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails with what a file said. Always NULL. */
json_t *request_fail_by(const struct reply *reply, char **why);

enum lane_kind { LANE_LOOK, LANE_ACT, LANE_EVALUATE, LANES };

/* Carries one out and answers it; what isn't known, or can't be done, has words too. */
void requests_serve(struct session *session, json_t *request);
/* Which thread does so. */
enum lane_kind requests_lane(const char *command);
