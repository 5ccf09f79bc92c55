// What a counted process asks of callgrind; nothing happens where callgrind does not watch.
#include <valgrind/callgrind.h>

extern "C" {
void count_start() { CALLGRIND_START_INSTRUMENTATION; }
void count_dump(const char* name) { CALLGRIND_DUMP_STATS_AT(name); }
void count_stop() { CALLGRIND_STOP_INSTRUMENTATION; }
}
