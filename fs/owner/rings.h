/* What came in rings that processes recorded, decoded by a process without any rights: the
 * descriptors come with the question, and the process that wrote them isn't looked at. */
#pragma once

#include "fs/owner/message.h"
#include "fs/recording/recording.h"

/* Holds the rings that came with a request, as the one who asks does. What is none any more, as its
 * process has written over the head of it, has no rows. */
int rings_take(const struct owner_request *request, struct recording *recording);
/* Answers a request with call->value questions behind it, struct ring_ask each: the text is what
 * ring_copies_read() reads. Returns answer->error. */
int rings_question_answer(const struct owner_request *request, const char *more,
                          struct owner_answer *answer);
