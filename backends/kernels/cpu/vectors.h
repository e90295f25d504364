// Sixteen numbers at a time, in the three types that weights come in.

#pragma once

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#error "g++ 12 or newer is needed"  // for _Float16
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <omp.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define DECODEBENCH_HALVES  // vectors of 32 bytes are the longest
#include "halves.h"
#endif

namespace decodebench {

typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
#if defined(DECODEBENCH_HALVES)
typedef Pair<float> Vec;
typedef Pair<int32_t> Ints;
#else
typedef float Vec __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
#endif
constexpr int LANES = 16;
constexpr float LOWEST = -3.4e38f;

struct Bf16 { uint16_t bits; };
typedef _Float16 Fp16;
typedef Fp16 Fp16s __attribute__((vector_size(32)));

template <class V, class T> inline V read(const T* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

#if defined(DECODEBENCH_HALVES)
template <> inline Ints read<Ints>(const char* from) { return Ints::read(from); }
inline Vec load(const float* from) { return Vec::read(from); }
inline Vec load(const Bf16* from) { return {eight_of_bf16(from), eight_of_bf16(from + 8)}; }
inline Vec load(const Fp16* from) { return {eight_of_fp16(from), eight_of_fp16(from + 8)}; }
#else
inline Vec load(const float* from) { return read<Vec>(from); }
inline Vec load(const Bf16* from) {
    Words words = __builtin_convertvector(read<Halves>(from), Words) << 16;
    return read<Vec>(&words);
}
inline Vec load(const Fp16* from) { return __builtin_convertvector(read<Fp16s>(from), Vec); }
#endif

inline float widen(float x) { return x; }
inline float widen(Fp16 x) { return static_cast<float>(x); }
inline float widen(Bf16 x) {
    uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    return read<float>(&bits);
}

inline void narrow(float x, float& to) { to = x; }
inline void narrow(float x, Fp16& to) { to = static_cast<Fp16>(x); }
inline void narrow(float x, Bf16& to) {
    uint32_t bits = read<uint32_t>(&x);
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    to.bits = nan ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(DECODEBENCH_HALVES)
inline float sum(Vec v) { return folded(v.low + v.high, [](auto a, auto b) { return a + b; }); }
inline float highest(Vec v) {
    auto more = [](auto a, auto b) { return a > b ? a : b; };
    return folded(more(v.low, v.high), more);
}
#elif defined(__AVX512F__)
inline float sum(Vec v) { return _mm512_reduce_add_ps((__m512)v); }
inline float highest(Vec v) { return _mm512_reduce_max_ps((__m512)v); }
#else
inline float highest(Vec v) {
    float top = v[0];
    for (int i = 1; i < LANES; ++i) top = v[i] > top ? v[i] : top;
    return top;
}
inline float sum(Vec v) {
    float lanes[LANES];
    std::memcpy(lanes, &v, sizeof v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}
#endif

// Lane by lane one of two.
template <class V, class M> inline V choose(M first, V one, V other) { return first ? one : other; }

// exp by range reduction and a polynomial of degree 6; relative error below 3e-7.
template <class V> inline V exponential(V x) {
    typedef decltype(x < x) Bits;
    x = x < -87.0f ? V{} - 87.0f : x;
    x = x > 88.0f ? V{} + 88.0f : x;
    const float magic = 12582912.0f;  // adding it rounds to an integer
    V n = (x * 1.44269504f + magic) - magic;
    V r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return (V)((Bits)p + (__builtin_convertvector(n, Bits) << 23));
}
#if defined(DECODEBENCH_HALVES)
inline Vec exponential(Vec x) { return {exponential(x.low), exponential(x.high)}; }
#endif

template <class T> inline void store(Vec value, T* to) {
    for (int i = 0; i < LANES; ++i) narrow(value[i], to[i]);
}
#if defined(DECODEBENCH_HALVES)
inline void store(Vec value, float* to) { value.write(to); }
inline void store(Vec value, Bf16* to) { store_bf16(value, to); }
inline void store(Vec value, Fp16* to) { store_fp16(value, to); }
#else
inline void store(Vec value, float* to) { std::memcpy(to, &value, sizeof value); }
#endif
#if defined(__AVX512BF16__)
inline void store(Vec value, Bf16* to) {
    __m256bh narrowed = _mm512_cvtneps_pbh((__m512)value);
    std::memcpy(to, &narrowed, sizeof narrowed);
}
#endif

// put(i, values): 16 numbers at a time of a row under its norm (RMSNorm).
template <class Put>
inline void normalise(const float* x, const float* gain, int size, float epsilon, Put put) {
    Vec squares = {};
    for (int i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    float scale = 1.0f / std::sqrt(sum(squares) / size + epsilon);
    for (int i = 0; i < size; i += LANES) put(i, load(x + i) * scale * load(gain + i));
}

struct Range { int64_t first, last; };

// The share of this thread of `count` items.
inline Range share(int64_t count) {
    int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    return {count * me / threads, count * (me + 1) / threads};
}

}  // namespace decodebench
