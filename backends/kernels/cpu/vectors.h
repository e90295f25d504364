// Sixteen numbers at a time, in the three types that weights come in.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <omp.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace decodebench {

typedef float Vec __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
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

inline Vec load(const float* from) { return read<Vec>(from); }
inline Vec load(const Bf16* from) {
    Words words = __builtin_convertvector(read<Halves>(from), Words) << 16;
    return read<Vec>(&words);
}
inline Vec load(const Fp16* from) { return __builtin_convertvector(read<Fp16s>(from), Vec); }

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

#if defined(__AVX512F__)
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

// exp by range reduction and a polynomial of degree 6; relative error below 3e-7.
inline Vec exponential(Vec x) {
    x = x < -87.0f ? Vec{} - 87.0f : x;
    x = x > 88.0f ? Vec{} + 88.0f : x;
    const float magic = 12582912.0f;  // adding it rounds to an integer
    Vec n = (x * 1.44269504f + magic) - magic;
    Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Ints bits = read<Ints>(&p) + (__builtin_convertvector(n, Ints) << 23);
    return read<Vec>(&bits);
}

template <class T> inline void store(Vec value, T* to) {
    for (int i = 0; i < LANES; ++i) narrow(value[i], to[i]);
}
inline void store(Vec value, float* to) { std::memcpy(to, &value, sizeof value); }
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
