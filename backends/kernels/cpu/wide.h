// What sampling computes for a share of the vocabulary, as many numbers of double precision at a time
// as a vector holds.
//
// Each step is one rounded operation, in the order of `backends/engine/sampling.py`: here the
// compiler may not make one of a product and a sum, as it does for the model's layers.

#pragma once

#include "vectors.h"

#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

namespace decodebench {

#if defined(DECODEBENCH_HALVES)
constexpr int WIDE = 4;
#else
constexpr int WIDE = 8;
#endif
typedef double Doubles __attribute__((vector_size(8 * WIDE)));
typedef uint64_t Longs __attribute__((vector_size(8 * WIDE)));
typedef float Floats __attribute__((vector_size(4 * WIDE)));

// Where a token stands by mass: those ahead of a bound weigh more, or as much with a lower id.
struct Bound {
    uint64_t weight = 0;
    int64_t token = INT64_MAX;
};

struct Leader {
    double score;
    int64_t token;
};

inline Doubles doubles(Longs bits) { return (Doubles)bits; }
inline Longs longs(Doubles value) { return (Longs)value; }

template <class V> inline V mixed(V state) {
    state += 0x9E3779B97F4A7C15u;
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
    return state ^ (state >> 31);
}

// What the noise of all tokens at a position begins with.
inline uint64_t noise_start(uint64_t seed, int32_t position) {
    return mixed(mixed(seed) ^ (uint64_t(int64_t(position)) * 0x9E3779B97F4A7C15u));
}

// Of normal numbers between 0 and 1: the exponent, and twice the artanh of (m - 1) / (m + 1).
inline Doubles logarithm(Doubles x) {
    Longs bits = longs(x), exponent = bits >> 52;
    Doubles m = doubles((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
    auto large = m > 0x1.6a09e667f3bcdp+0;
    m = large ? m * 0.5 : m;
    exponent = large ? exponent + 1 : exponent;
    // the exponent as the lowest bits of 2^52 and some
    Doubles k = doubles(exponent | 0x4330000000000000u) - (0x1p52 + 1023);
    Doubles s = (m - 1.0) / (m + 1.0), z = s * s, sum = Doubles{} + 1.0 / 21;
    for (int odd = 19; odd > 1; odd -= 2) sum = sum * z + 1.0 / odd;
    return k * 0x1.62e42fefa39efp-1 + (s * z * sum + s) * 2.0;
}

// 0 below -700, for which nothing else is right, and for NaN. By its series around a multiple of
// log 2.
inline Doubles exponential(Doubles x) {
    const double magic = 0x1.8p52;  // adding it rounds to an integer
    constexpr double FACTORIALS[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800,
                                     39916800, 479001600, 6227020800};
    Doubles shifted = x * 0x1.71547652b82fep+0 + magic, n = shifted - magic;
    Doubles r = (x - n * 0x1.62e42ff000000p-1) - n * -0x1.718432a1b0e26p-35;
    Doubles sum = Doubles{} + 1.0 / FACTORIALS[13];
    for (int power = 12; power >= 0; --power) sum = sum * r + 1.0 / FACTORIALS[power];
    Doubles scale = doubles((longs(shifted) << 52) + (uint64_t(1023) << 52));
    return x >= -700.0 ? sum * scale : Doubles{};
}

inline Longs tokens_from(int64_t first) {
    constexpr uint64_t COUNTED[] = {0, 1, 2, 3, 4, 5, 6, 7};
    return read<Longs>(COUNTED) + uint64_t(first);
}

// The exponential distribution's noise of WIDE tokens from `first` on: -log of numbers between 0
// and 1, of 52 bits.
inline Doubles noise(uint64_t start, int64_t first) {
    Longs bits = mixed(tokens_from(first) * 0x9E3779B97F4A7C15u + start) >> 12;
    Doubles even = doubles(bits | 0x3FF0000000000000u) - 1.0 + 0x1p-53;
    return -logarithm(even);
}

// Weights, 1 for the highest logit.
inline Doubles weigh(const float* logits, float top, double temperature) {
    Doubles wide = __builtin_convertvector(read<Floats>(logits), Doubles);
    return exponential((wide - double(top)) / temperature);
}

[[gnu::noinline]] static float top_logit(const float* logits, int64_t first, int64_t last) {
    float top = -INFINITY;
    for (int64_t i = first; i < last; ++i) top = logits[i] > top ? logits[i] : top;
    return top;
}

// Tokens `first` to `last` - 1, of which those from `vocabulary` on do not exist: their weights as
// shares of 2^44, their scores, and the sum of the weights.
[[gnu::noinline]] static uint64_t race(const float* logits, int64_t vocabulary, int64_t first,
                                       int64_t last, float top, double temperature, uint64_t start,
                                       uint64_t* weights, double* scores) {
    Longs total = {};
    for (int64_t i = first; i < last; i += WIDE) {
        float rest[WIDE];
        const float* from = logits + i;
        if (i + WIDE > vocabulary) {
            for (int k = 0; k < WIDE; ++k) rest[k] = i + k < vocabulary ? logits[i + k] : -INFINITY;
            from = rest;
        }
        Doubles weight = weigh(from, top, temperature), score = weight / noise(start, i);
        Longs mass = longs(weight * 0x1p44 + 0x1p52) & 0xFFFFFFFFFFFFFu;
        total += mass;
        std::memcpy(weights + i, &mass, sizeof mass);
        std::memcpy(scores + i, &score, sizeof score);
    }
    uint64_t sum = 0;
    for (int k = 0; k < WIDE; ++k) sum += total[k];
    return sum;
}

// The noise and the weights of `count` tokens, a multiple of 8.
[[gnu::noinline]] static void race_parts(const float* logits, int64_t count, double temperature,
                                         uint64_t start, double* noises, double* weights) {
    float top = top_logit(logits, 0, count);
    for (int64_t i = 0; i < count; i += WIDE) {
        Doubles one = noise(start, i), other = weigh(logits + i, top, temperature);
        std::memcpy(noises + i, &one, sizeof one);
        std::memcpy(weights + i, &other, sizeof other);
    }
}

inline auto is_ahead(Longs weight, Longs token, Bound bound) {
    Longs limit = Longs{} + bound.weight;
    return (weight > limit) | ((weight == limit) & (token < uint64_t(bound.token)));
}

// The highest score among those ahead of a bound, of the lowest token that has it.
[[gnu::noinline]] static Leader leader(const uint64_t* weights, const double* scores, int64_t first,
                                       int64_t last, Bound bound) {
    Doubles best = Doubles{} - 1.0;
    Longs at = {};
    for (int64_t i = first; i < last; i += WIDE) {
        Doubles score = read<Doubles>(scores + i);
        Longs token = tokens_from(i);
        auto better = (score > best) & is_ahead(read<Longs>(weights + i), token, bound);
        best = better ? score : best;
        at = better ? token : at;
    }
    Leader found{-1.0, first};
    for (int k = 0; k < WIDE; ++k)
        if (best[k] > found.score || (best[k] == found.score && int64_t(at[k]) < found.token))
            found = {best[k], int64_t(at[k])};
    return found;
}

// The weights ahead of a bound, together.
[[gnu::noinline]] static uint64_t mass_ahead(const uint64_t* weights, int64_t first, int64_t last,
                                             Bound bound) {
    Longs total = {};
    for (int64_t i = first; i < last; i += WIDE) {
        Longs weight = read<Longs>(weights + i);
        total += is_ahead(weight, tokens_from(i), bound) ? weight : Longs{};
    }
    uint64_t sum = 0;
    for (int k = 0; k < WIDE; ++k) sum += total[k];
    return sum;
}

}  // namespace decodebench

#if !defined(__clang__)
#pragma GCC pop_options
#endif
