/* What a process does with its crashes, as ctl and status say it. */
#pragma once

#include "fs/base/text.h"
#include "fs/recording/recording.h"

/* "OnCrash: record". Passive. */
void on_crash_text(struct recording *recording, struct text *out);
