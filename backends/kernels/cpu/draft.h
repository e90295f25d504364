// Continuations, a token at a time, without coming back to the caller between two.

#pragma once

#include <algorithm>
#include <vector>

#include "model.h"

namespace decodebench {

// What a call continues, and what comes of it: `most` tokens of each at most, none after one less
// probable than `threshold` or among the `stops`, and none where logits are NaN (-1). None of these
// is a part of the continuation.
struct Continuation {
    const int32_t* most;
    float threshold;
    const int32_t* stops;
    int32_t stop_count, room;  // room: tokens from one row's continuation to the next's
    int32_t *tokens, *counts;
};

// run(rows, head, who): computes rows and chooses the tokens after them, unless the model has no room
// for them: then it ends with false. `head.rows` are the rows that are continued, `who` the numbers
// of their continuations.
template <class Run>
bool continue_rows(const Rows& rows, Head head, const Continuation& wanted, Run run) {
    int asked = head.count;
    std::vector<int32_t> who(asked), slots(asked), positions(asked), tokens(asked), numbers(asked);
    std::vector<int32_t> found(asked);
    std::vector<float> sure(asked);
    for (int i = 0; i < asked; ++i) {
        who[i] = numbers[i] = i;
        slots[i] = rows.slots[head.rows[i]];
        positions[i] = rows.positions[head.rows[i]];
        wanted.counts[i] = 0;
    }
    head.tokens = found.data();
    head.confidences = sure.data();
    Rows here = rows;
    while (head.count) {
        if (!run(here, head, who.data())) return false;
        int left = 0;
        for (int i = 0; i < head.count; ++i) {
            int row = who[i], token = found[i];
            const int32_t* end = wanted.stops + wanted.stop_count;
            bool is_sure = token >= 0 && sure[i] >= wanted.threshold;
            if (!is_sure || std::find(wanted.stops, end, token) != end) continue;
            int& count = wanted.counts[row];
            wanted.tokens[row * wanted.room + count++] = token;
            if (count == wanted.most[row]) continue;
            who[left] = row;
            slots[left] = slots[i];
            positions[left] = positions[i] + 1;
            tokens[left++] = token;
        }
        head.count = left;
        head.rows = numbers.data();
        here = Rows{left, slots.data(), positions.data(), tokens.data()};
    }
    return true;
}

}  // namespace decodebench
