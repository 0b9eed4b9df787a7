#include "agent/base/life.h"

struct life agent_life;
