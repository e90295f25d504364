// How fast this machine reads: what no kernel that streams weights can beat.

#pragma once

#include "vectors.h"

namespace decodebench {

constexpr int READ_AHEAD = 1024;   // bytes; the hardware's own prefetcher stops at a page's end
constexpr int LINE = 64, AT_ONCE = 16;

// Reads `lines` cache lines from `from` on, whole steps of STREAMS side by side (how many keep the
// memory busiest differs), and gives back a number that depends on each of them, so that no compiler
// leaves one out.
template <int STREAMS> int32_t read_lines(const char* from, int64_t lines) {
    int64_t each = lines / STREAMS;
    Ints total[STREAMS] = {};
    for (int64_t i = 0; i + AT_ONCE <= each; i += AT_ONCE)
        for (int s = 0; s < STREAMS; ++s) {
            const char* at = from + (s * each + i) * LINE;
            for (int k = 0; k < AT_ONCE; ++k) __builtin_prefetch(at + READ_AHEAD + k * LINE);
            for (int k = 0; k < AT_ONCE; ++k) total[s] ^= read<Ints>(at + k * LINE);
        }
    for (int s = 0; s < STREAMS; ++s)
        for (int64_t i = each / AT_ONCE * AT_ONCE; i < each; ++i)
            total[s] ^= read<Ints>(from + (s * each + i) * LINE);
    for (int64_t i = STREAMS * each; i < lines; ++i) total[0] ^= read<Ints>(from + i * LINE);
    for (int s = 1; s < STREAMS; ++s) total[0] ^= total[s];
    int32_t found = 0;
    for (int i = 0; i < LANES; ++i) found ^= total[0][i];
    return found;
}

}  // namespace decodebench
