/* Rows of tables, which an owner process (owner.h) reads for a statement that is run elsewhere: all
 * that are asked for at once are of one moment. */
#pragma once

#include "fs/owner/message.h"

struct looker;
struct stop;
struct waits;
struct wanted;

/* Makes the request, of call->value tables: what follows struct owner_request. looker: for whom.
 * Returns the bytes. */
size_t rows_question_write(struct wanted *const *wanted, size_t n, const struct looker *looker,
                           const struct stop *stop, char *more, size_t cap);
/* Answers it, of a process, or of one that has ended (NULL), whose rings came with the question:
 * the text is struct rows_stream's. Returns answer->error. */
int rows_question_answer(const struct server *server, struct process *process,
                         const struct owner_request *request, const char *more,
                         const struct interrupt *interrupt, struct owner_answer *answer);
/* Adds the answer's rows to wanted[i]->rows, which are begun, and reads the waits, if any are
 * wanted. -EPROTO: these are none of such tables. -ENOMEM, -EFBIG. */
int rows_answer_read(const struct owner_answer *answer, struct wanted *const *wanted, size_t n,
                     struct waits *waits);
