#include "agent/base/fork_count.h"

unsigned fork_number;
bool fork_begun;
