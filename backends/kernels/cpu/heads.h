// The final head and the exit heads: the most probable token and its probability, without writing
// the logits down; or the logits themselves.

#pragma once

#include "layers.h"

namespace decodebench {

constexpr int BLOCK = 4;  // blocks of 16 vocabulary entries per task of a head

template <class T> struct Heads : Layers<T> {
    using Layers<T>::Layers;
    using Layers<T>::m;
    using Layers<T>::width;
    using Layers<T>::own;
    using Layers<T>::ring;

    T* head_input(const Head& head) const {
        T* x = own();
        for (int i = 0; i < head.count; ++i)
            normalise(ring(head.from, head.rows[i]), m.norm, width, m.epsilon,
                      x + int64_t(i) * width);
        return x;
    }

    // Per row and task of the vocabulary: maximum, its place and the sum of exponentials.
    void top(const Head& head) const {
        int64_t blocks = (head.vocabulary + LANES - 1) / LANES, tasks = (blocks + BLOCK - 1) / BLOCK;
        const T* x = head_input(head);
        Range mine = share(tasks);
        for (int64_t task = mine.first; task < mine.last; ++task) {
            int64_t first = task * BLOCK, last = first + BLOCK < blocks ? first + BLOCK : blocks;
            int64_t count = head.vocabulary - first * LANES;
            if (count > BLOCK * LANES) count = BLOCK * LANES;
            for (int base = 0; base < head.count; base += 12) {
                int some = head.count - base < 12 ? head.count - base : 12;
                alignas(64) float logits[12][BLOCK * LANES];
                product(static_cast<const T*>(head.matrix), x + int64_t(base) * width, width, some,
                        first, last, [&](int r, int64_t block, const Vec* value) {
                            store(*value, logits[r] + (block - first) * LANES);
                        });
                for (int r = 0; r < some; ++r)
                    summarise(logits[r], int(count), first * LANES,
                              head.parts + ((base + r) * tasks + task) * 3);
            }
        }
#pragma omp barrier
#pragma omp master
        for (int i = 0; i < head.count; ++i)
            best(head.parts + i * tasks * 3, tasks, head.tokens + i, head.confidences + i);
    }

    void summarise(float* logits, int count, int64_t start, float* out) const {
        int place = 0;
        for (int i = 1; i < count; ++i) place = logits[i] > logits[place] ? i : place;
        int32_t token = int32_t(start + place);
        float pair[2];
        soften(logits, count, pair);
        out[0] = pair[0];
        std::memcpy(out + 1, &token, sizeof token);
        out[2] = pair[1];
    }

    static void best(const float* parts, int64_t tasks, int32_t* token, float* confidence) {
        int64_t place = 0;
        for (int64_t b = 1; b < tasks; ++b) place = parts[b * 3] > parts[place * 3] ? b : place;
        float top = parts[place * 3], total = 0.0f;
        for (int64_t b = 0; b < tasks; ++b) total += std::exp(parts[b * 3] - top) * parts[b * 3 + 2];
        std::memcpy(token, parts + place * 3 + 1, sizeof *token);
        *confidence = 1.0f / total;
    }

    void logits(const Head& head, float* out) const {
        const T* x = head_input(head);
        Range mine = share((head.vocabulary + LANES - 1) / LANES);
        product(static_cast<const T*>(head.matrix), x, width, head.count, mine.first, mine.last,
                [&](int r, int64_t block, const Vec* value) {
                    int64_t left = head.vocabulary - block * LANES;
                    std::memcpy(out + r * head.vocabulary + block * LANES, value,
                                sizeof(float) * (left < LANES ? left : LANES));
                });
    }
};

}  // namespace decodebench
