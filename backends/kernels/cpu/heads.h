// The final head and the exit heads: the most probable token and its probability, or how far it is
// above the second, without writing the logits down; or the logits themselves.

#pragma once

#include "layers.h"

namespace decodebench {

constexpr int BLOCK = 4;                   // blocks of 16 vocabulary entries per task of a head
constexpr int AT_A_TIME = MOST_STREAMED;  // rows
constexpr int SUMMARY = 4;                // floats of a task and row

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

    // Per row and task of the vocabulary: maximum, its place, the sum of exponentials, and for a
    // margin the second highest.
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
                for (int r = 0; r < some; ++r) {
                    float* out = head.parts + ((base + r) * tasks + task) * SUMMARY;
                    summarise(logits[r], int(count), first * LANES, out);
                    if (head.margins) out[3] = second(logits[r]);
                }
            }
        }
#pragma omp barrier
#pragma omp master
        for (int i = 0; i < head.count; ++i)
            best(head.parts + i * tasks * SUMMARY, tasks, head.margins, head.tokens + i,
                 head.confidences + i);
    }

    // `logits` of BLOCK blocks, `count` of them real: the first of the highest, and the sum. NaN and
    // token -1 where one of them is NaN.
    void summarise(float* logits, int count, int64_t start, float* out) const {
        for (int i = count; i < BLOCK * LANES; ++i) logits[i] = LOWEST;
        Vec most = load(logits), total = {}, number, highest_at = Vec{} + 1e9f;
        for (int i = 0; i < LANES; ++i) number[i] = float(i);
        for (int i = LANES; i < BLOCK * LANES; i += LANES) {
            Vec here = load(logits + i);
            most = choose(here > most, here, most);
        }
        float top = highest(most);
        for (int i = 0; i < BLOCK * LANES; i += LANES, number += float(LANES)) {
            Vec at = choose(load(logits + i) == top, number, Vec{} + 1e9f);
            highest_at = choose(at < highest_at, at, highest_at);
        }
        float found = -highest(-highest_at);
        Vec spoilt = {};  // a comparison passes over NaN
        for (int i = 0; i < BLOCK * LANES; i += LANES) {
            Vec here = load(logits + i);
            spoilt += choose(here != here, here, Vec{});
            total += choose(here == LOWEST, Vec{}, exponential(here - top));
        }
        top += sum(spoilt);
        int32_t token = top == top ? int32_t(start) + int32_t(found) : -1;
        out[0] = top;
        std::memcpy(out + 1, &token, sizeof token);
        out[2] = sum(total);
    }

    // The second highest of BLOCK blocks of logits; the highest again where two are.
    static float second(const float* logits) {
        Vec first = load(logits), then = Vec{} + LOWEST;
        for (int i = LANES; i < BLOCK * LANES; i += LANES) {
            Vec here = load(logits + i), lower = choose(here < first, here, first);
            then = choose(lower > then, lower, then);
            first = choose(here > first, here, first);
        }
        float top = LOWEST, next = LOWEST;
        for (int i = 0; i < LANES; ++i)
            for (float x : {first[i], then[i]}) {
                next = x > top ? top : x > next ? x : next;
                top = x > top ? x : top;
            }
        return next;
    }

    static void best(const float* parts, int64_t tasks, bool margin, int32_t* token,
                     float* confidence) {
        int64_t place = 0;
        float top = parts[0], total = 0.0f, next = LOWEST;
        for (int64_t b = 1; b < tasks && top == top; ++b)  // the first NaN is above all
            if (!(parts[b * SUMMARY] <= top)) top = parts[b * SUMMARY], place = b;
        for (int64_t b = 0; b < tasks; ++b) {
            const float* part = parts + b * SUMMARY;
            total += std::exp(part[0] - top) * part[2];
            if (margin) next = std::fmax(next, b == place ? part[3] : part[0]);
        }
        std::memcpy(token, parts + place * SUMMARY + 1, sizeof *token);
        *confidence = (margin ? 1.0f - std::exp(next - top) : 1.0f) / total;
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
