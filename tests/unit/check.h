/* What a C unit test needs: CHECK() prints what failed and where, and the process exits 1. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond)                                                   \
 do {                                                                 \
  if (!(cond)) {                                                      \
   fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
   exit(1);                                                           \
  }                                                                   \
 } while (0)

#define CHECK_INT(got, want)                                                                \
 do {                                                                                       \
  long long got_ = (long long)(got), want_ = (long long)(want);                             \
  if (got_ != want_) {                                                                      \
   fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_, want_); \
   exit(1);                                                                                 \
  }                                                                                         \
 } while (0)

#define CHECK_STR(got, want)                                                      \
 do {                                                                             \
  const char *got_ = (got), *want_ = (want);                                      \
  if (!got_ || strcmp(got_, want_)) {                                             \
   fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #got, \
           got_ ? got_ : "(null)", want_);                                        \
   exit(1);                                                                       \
  }                                                                               \
 } while (0)
