// Products on processors whose vectors have 32 bytes (AVX2): sixteen outputs are two of them.
//
// The compiler keeps a vector of 64 bytes in memory there, and there are half as many registers: so
// few outputs at a time, and inputs that are made floats once, for all outputs of a call.

#pragma once

#include "operands.h"
#if defined(DECODEBENCH_HALVES)
#include <memory>

namespace decodebench {

// Input `g` of the group at `from`, of sixteen outputs.
inline Vec column(const float* from, int) { return load(from); }
inline Vec column(const Fp16* from, int) { return load(from); }
inline Vec column(const Bf16* from, int g) {
    auto half = [&](int start) {
        __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + start));
        __m256i upper = _mm256_set1_epi32(int(0xffff0000));
        both = g ? _mm256_and_si256(both, upper) : _mm256_slli_epi32(both, 16);
        return _mm256_castsi256_ps(both);
    };
    return {half(0), half(LANES)};
}

// N blocks of outputs for R rows of floats, which follow one another; out[r * apart + n] is row r's
// of block n.
template <class T, int G, int R, int N>
[[gnu::noinline]] void halved(const Packed<T>& m, const float* x, int64_t block, Vec* out,
                              int64_t apart) {
    Vec total[R][N] = {};
    const T* w = m.at + block * m.block;
    for (int64_t first = 0; first < m.inputs; first += STEP) {
        int64_t here = m.inputs - first < STEP ? m.inputs - first : STEP;
        for (int64_t k = 0; k < here; k += G) {
#pragma GCC unroll 2
            for (int g = 0; g < G; ++g)
#pragma GCC unroll 8
                for (int n = 0; n < N; ++n) {
                    Vec weights = column(w + n * m.block + k * LANES, g);
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) {
                        __m256 input = _mm256_broadcast_ss(x + r * m.inputs + first + k + g);
                        Vec& sum = total[r][n];
                        sum.low = _mm256_fmadd_ps(weights.low, input, sum.low);
                        sum.high = _mm256_fmadd_ps(weights.high, input, sum.high);
                    }
                }
        }
        w += m.step;
    }
    // in a loop they would have to lie in memory, all the time
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) total[r][n].write(out + r * apart + n);
}

// A thread's rows of inputs as floats, one after another.
template <class T> inline const float* widened(const Inputs<T>& x, int rows, int64_t size) {
    static thread_local std::unique_ptr<float[]> room;
    static thread_local int64_t has = 0;
    if (has < rows * size) room.reset(new float[has = rows * size]);
    float* to = room.get();
    for (int r = 0; r < rows; ++r)
        for (int64_t k = 0; k < size; k += STEP) {
            const T* from = x.place(r, k);
            int64_t here = size - k < STEP ? size - k : STEP;
            for (int64_t i = 0; i < here; i += LANES) store(load(from + i), to + i);
            to += here;
        }
    return room.get();
}

// Of N blocks up to R rows: as many sums as there are registers for.
template <class T, int G, int N, int R = N == 1 ? 6 : N == 2 ? 3 : 1>
inline void halved_rows(const Packed<T>& m, const float* x, int rows, int64_t block, Vec* out,
                        int64_t apart) {
    if (rows == R) return halved<T, G, R, N>(m, x, block, out, apart);
    if constexpr (R > 1) halved_rows<T, G, N, R - 1>(m, x, rows, block, out, apart);
}

// See `product`.
template <class T, int G, class Put>
inline void halved_product(const Packed<T>& m, const Inputs<T>& x, int rows, int64_t first,
                           int64_t last, Put put) {
    constexpr int MOST = 6;  // rows at a time
    const float* inputs = widened(x, rows, m.inputs);
    Vec out[2 * MOST];
    for (int64_t block = first, some; block < last; block += some) {
        int64_t left = last - block;
        some = left >= 4 && rows == 1 ? 4 : left >= 2 ? 2 : 1;
        for (int row = 0, here; row < rows; row += here) {
            int times = (rows - row + MOST - 1) / MOST;
            here = (rows - row + times - 1) / times;
            const float* from = inputs + row * m.inputs;
            if (some == 4) halved_rows<T, G, 4>(m, from, here, block, out, some);
            else if (some == 2 && here <= 3) halved_rows<T, G, 2>(m, from, here, block, out, some);
            else
                for (int64_t n = 0; n < some; ++n)
                    halved_rows<T, G, 1>(m, from, here, block + n, out + n, some);
            for (int r = 0; r < here; ++r)
                for (int64_t n = 0; n < some; ++n) put(row + r, block + n, out + r * some + n);
        }
    }
}

}  // namespace decodebench

#endif
