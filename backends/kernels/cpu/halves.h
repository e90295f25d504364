// Sixteen numbers as two vectors of 32 bytes, where there are no longer ones (AVX2): the compiler would
// keep one of 64 bytes in memory.

#pragma once

#include <cstdint>
#include <immintrin.h>

namespace decodebench {

template <class N> struct Pair {
    typedef N Half __attribute__((vector_size(32)));
    typedef Pair<int32_t> Mask;
    Half low, high;

    // Anywhere in memory, half by half: a copy of the whole would keep it there.
    static Pair read(const void* from) {
        auto halves = static_cast<const float*>(from);
        return {(Half)_mm256_loadu_ps(halves), (Half)_mm256_loadu_ps(halves + 8)};
    }
    void write(void* to) const {
        auto halves = static_cast<float*>(to);
        _mm256_storeu_ps(halves, (__m256)low);
        _mm256_storeu_ps(halves + 8, (__m256)high);
    }

    N* at() { return reinterpret_cast<N*>(this); }
    N& operator[](int i) { return at()[i]; }
    N operator[](int i) const { return const_cast<Pair*>(this)->at()[i]; }

#define LANE_BY_LANE(op)                                                                   \
    friend Pair operator op(Pair a, Pair b) { return {a.low op b.low, a.high op b.high}; } \
    friend Pair operator op(Pair a, N b) { return {a.low op b, a.high op b}; }             \
    template <class B> Pair& operator op##=(B b) { return *this = *this op b; }
    LANE_BY_LANE(+)
    LANE_BY_LANE(-)
    LANE_BY_LANE(*)
    LANE_BY_LANE(/)
    LANE_BY_LANE(^)
#undef LANE_BY_LANE
    friend Pair operator-(Pair a) { return {-a.low, -a.high}; }

#define COMPARED(op)                                                                       \
    friend Mask operator op(Pair a, Pair b) { return {a.low op b.low, a.high op b.high}; } \
    friend Mask operator op(Pair a, N b) { return {a.low op b, a.high op b}; }
    COMPARED(<)
    COMPARED(>)
    COMPARED(==)
    COMPARED(!=)
#undef COMPARED
};

inline Pair<float> choose(Pair<int32_t> first, Pair<float> one, Pair<float> other) {
    return {first.low ? one.low : other.low, first.high ? one.high : other.high};
}

// both(a, b) of all eight numbers, those that lie farthest apart first.
template <class Both> inline float folded(__m256 eight, Both both) {
    __m128 four = both(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = both(four, _mm_movehl_ps(four, four));
    return both(two, _mm_shuffle_ps(two, two, 1))[0];
}

// Eight numbers in bfloat16 as floats.
inline __m256 eight_of_bf16(const void* from) {
    __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

inline __m256 eight_of_fp16(const void* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}

// Rounded to the nearest number in bfloat16, of two the even one; the highest 16 bits of each.
inline __m256i rounded_to_bf16(__m256 value) {
    __m256i bits = _mm256_castps_si256(value), one = _mm256_set1_epi32(1);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc00000), nan), 16);
}

inline void store_bf16(Pair<float> value, void* to) {
    __m256i packed = _mm256_packus_epi32(rounded_to_bf16(value.low), rounded_to_bf16(value.high));
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
}

inline void store_fp16(Pair<float> value, void* to) {
    __m128i* at = static_cast<__m128i*>(to);
    _mm_storeu_si128(at, _mm256_cvtps_ph(value.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(at + 1, _mm256_cvtps_ph(value.high, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace decodebench
