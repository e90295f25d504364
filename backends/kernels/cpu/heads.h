// The final head and the exit heads: the most probable token and its probability, without writing
// the logits down; or the logits themselves.

#pragma once

#include "layers.h"

namespace decodebench {

constexpr int BLOCK = 4;                   // blocks of 16 vocabulary entries per task of a head
constexpr int AT_A_TIME = MOST_STREAMED;  // rows

template <class T> struct Heads : Layers<T> {
    using Layers<T>::Layers;
    using Layers<T>::m;
    using Layers<T>::width;
    using Layers<T>::room;
    using Layers<T>::normalised;
    using Layers<T>::ring;

    Inputs<T> head_input(const Head& head) const {
        return normalised(head.count, m.norm,
                          [&](int64_t i) { return ring(head.from, head.rows[i]); });
    }

    // Per row and task of the vocabulary: maximum, its place and the sum of exponentials.
    void top(const Head& head) const {
        int64_t blocks = (head.vocabulary + LANES - 1) / LANES, tasks = (blocks + BLOCK - 1) / BLOCK;
        Packed<T> matrix = Packed<T>::weights(head.matrix, width);
        Inputs<T> x = head_input(head);
        Range mine = share(tasks);
        for (int64_t task = mine.first; task < mine.last; ++task) {
            int64_t first = task * BLOCK, last = first + BLOCK < blocks ? first + BLOCK : blocks;
            int64_t count = head.vocabulary - first * LANES;
            if (count > BLOCK * LANES) count = BLOCK * LANES;
            for (int base = 0; base < head.count; base += AT_A_TIME) {
                int some = head.count - base < AT_A_TIME ? head.count - base : AT_A_TIME;
                alignas(64) float logits[AT_A_TIME][BLOCK * LANES];
                Inputs<T> from = x;
                from.at = x.place(base, 0);
                product(matrix, from, some, first, last, nullptr,
                        [&](int r, int64_t block, const Vec* value) {
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

    // `logits` of BLOCK blocks, `count` of them real: the first of the highest, and the sum.
    void summarise(float* logits, int count, int64_t start, float* out) const {
        for (int i = count; i < BLOCK * LANES; ++i) logits[i] = LOWEST;
        Vec most = load(logits), total = {}, number, highest_at = Vec{} + 1e9f;
        for (int i = 0; i < LANES; ++i) number[i] = float(i);
        for (int i = LANES; i < BLOCK * LANES; i += LANES) {
            Vec here = load(logits + i);
            most = here > most ? here : most;
        }
        float top = highest(most);
        for (int i = 0; i < BLOCK * LANES; i += LANES, number += float(LANES)) {
            Vec at = load(logits + i) == top ? number : Vec{} + 1e9f;
            highest_at = at < highest_at ? at : highest_at;
        }
        float found = -highest(-highest_at);
        int32_t place = found < float(count) ? int32_t(found) : 0;  // NaN is nowhere
        for (int i = 0; i < BLOCK * LANES; i += LANES) {
            Vec here = load(logits + i);
            total += here == LOWEST ? Vec{} : exponential(here - top);
        }
        int32_t token = int32_t(start) + place;
        out[0] = top;
        std::memcpy(out + 1, &token, sizeof token);
        out[2] = sum(total);
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
        Inputs<T> x = head_input(head);
        Range mine = share((head.vocabulary + LANES - 1) / LANES);
        product(Packed<T>::weights(head.matrix, width), x, head.count, mine.first, mine.last, room(),
                [&](int r, int64_t block, const Vec* value) {
                    int64_t left = head.vocabulary - block * LANES;
                    std::memcpy(out + r * head.vocabulary + block * LANES, value,
                                sizeof(float) * (left < LANES ? left : LANES));
                });
    }
};

}  // namespace decodebench
