/* What each fuzzer implements; libFuzzer calls it with one input after the other. Returns 0. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
