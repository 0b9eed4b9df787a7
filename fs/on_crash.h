/* What a process does with its crashes, as ctl and status say it. */
#pragma once

#include "fs/link/recording.h"
#include "fs/text.h"

/* "OnCrash: record". Passive. */
void on_crash_text(struct recording *recording, struct text *out);
