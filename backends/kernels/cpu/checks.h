// How sure a sequence is after a layer, row by row in single precision: the confidence measures of
// early exit. One thread: the rows of a decode step are few.

#pragma once

#include <initializer_list>

#include "vectors.h"

namespace decodebench {

// Calls act(lanes) for each 16 numbers of a row, with `fill` after the last.
template <class T, class Do> inline void over(const T* row, int64_t size, float fill, Do act) {
    int64_t whole = size / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) act(load(row + i));
    if (whole == size) return;
    float rest[LANES];
    for (int i = 0; i < LANES; ++i) rest[i] = whole + i < size ? widen(row[whole + i]) : fill;
    act(load(rest));
}

// The most probable token's probability minus the second's. NaN where a logit is NaN or infinite;
// minus infinity rules a token out and is fine.
template <class T> float margin(const T* logits, int64_t size) {
    Vec first = Vec{} + LOWEST, second = first, spoilt = {};
    over(logits, size, LOWEST, [&](Vec x) {
        spoilt += choose(x > LOWEST, x, Vec{}) * 0.0f;
        spoilt += choose(x != x, x, Vec{});
        Vec lower = choose(x < first, x, first);
        second = choose(lower > second, lower, second);
        first = choose(x > first, x, first);
    });
    float top = LOWEST, next = LOWEST;
    for (int i = 0; i < LANES; ++i)
        for (float x : {first[i], second[i]}) {
            next = x > top ? top : x > next ? x : next;
            top = x > top ? x : top;
        }
    Vec total = {};
    over(logits, size, LOWEST, [&](Vec x) { total += exponential(x - top); });
    return (1.0f - std::exp(next - top)) / sum(total) + sum(spoilt);
}

// a . b / (|a| |b|); a shorter vector counts as 1e-8 long, as the reference has it.
template <class T> float cosine(const T* a, const T* b, int64_t size) {
    Vec both = {}, left = {}, right = {};
    int64_t whole = size / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        Vec x = load(a + i), y = load(b + i);
        both += x * y, left += x * x, right += y * y;
    }
    float product = sum(both), one = sum(left), two = sum(right);
    for (int64_t i = whole; i < size; ++i) {
        float x = widen(a[i]), y = widen(b[i]);
        product += x * y, one += x * x, two += y * y;
    }
    float floor = 1e-8f, first = std::sqrt(one), second = std::sqrt(two);
    return product / ((first > floor ? first : floor) * (second > floor ? second : floor));
}

// sigmoid(x . weight + bias)
template <class T> float probability(const T* x, const float* weight, float bias, int64_t size) {
    Vec total = {};
    int64_t whole = size / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) total += load(x + i) * load(weight + i);
    float found = sum(total) + bias;
    for (int64_t i = whole; i < size; ++i) found += widen(x[i]) * weight[i];
    return 1.0f / (1.0f + std::exp(-found));
}

template <class Do> void typed(int32_t dtype, Do act) {
    if (dtype == 0) act(float{});
    else if (dtype == 1) act(Bf16{});
    else act(Fp16{});
}

}  // namespace decodebench
