#include "agent/base/fork_count.h"

unsigned fork_number;
