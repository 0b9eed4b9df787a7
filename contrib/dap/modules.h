/* What the process has imported. */
#pragma once

#include "contrib/dap/session.h"

request_run modules_list, modules_sources;
