// Products of a packed matrix with a few rows. Each output is one chain of multiply-adds in the
// order of its inputs, so that it depends on its row alone, however many rows there are.

#pragma once

#include "vectors.h"

namespace decodebench {

// Matrices are packed so that the lanes of a vector are 16 outputs: blocks of 16 outputs, in each the
// inputs one after another, GROUP of them side by side. No sum over lanes is ever needed.
template <class T> struct Dot {
    static constexpr int GROUP = 1;
    static Vec weights(const T* from) { return load(from); }
    static Vec inputs(const T* from) { return Vec{} + widen(*from); }
    static Vec add(Vec total, Vec w, Vec x) { return total + w * x; }
};
#if defined(__AVX512BF16__)
template <> struct Dot<Bf16> {
    static constexpr int GROUP = 2;
    static __m512i weights(const Bf16* from) { return _mm512_loadu_si512(from); }
    static __m512i inputs(const Bf16* from) { return _mm512_set1_epi32(read<int32_t>(from)); }
    static Vec add(Vec total, __m512i w, __m512i x) {
        return (Vec)_mm512_dpbf16_ps((__m512)total, (__m512bh)w, (__m512bh)x);
    }
};
#endif

// Where input k of output n lies in a packed matrix of `size` inputs.
template <class T> inline int64_t packed(int64_t n, int64_t k, int64_t size) {
    constexpr int G = Dot<T>::GROUP;
    return n / LANES * LANES * size + k / G * G * LANES + n % LANES * G + k % G;
}

// put(row, block, values): N blocks of outputs for R rows.
template <class T, int R, int N, class Put>
inline void tile(const T* weights, const T* x, int64_t size, int row, int64_t block, Put put) {
    typedef Dot<T> D;
    Vec total[R][N] = {};
    const T* w = weights + block * LANES * size;
    x += row * size;
    for (int64_t k = 0; k < size; k += D::GROUP) {
        decltype(D::weights(w)) column[N];
        for (int n = 0; n < N; ++n) column[n] = D::weights(w + n * LANES * size + k * LANES);
        for (int r = 0; r < R; ++r) {
            auto value = D::inputs(x + r * size + k);
            for (int n = 0; n < N; ++n) total[r][n] = D::add(total[r][n], column[n], value);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) put(row + r, block + n, total[r] + n);
}

template <class T, int N, class Put>
inline void tiles(const T* weights, const T* x, int64_t size, int rows, int64_t block, Put put) {
    int row = 0;
    for (; row + 6 <= rows; row += 6) tile<T, 6, N>(weights, x, size, row, block, put);
    switch (rows - row) {
        case 5: return tile<T, 5, N>(weights, x, size, row, block, put);
        case 4: return tile<T, 4, N>(weights, x, size, row, block, put);
        case 3: return tile<T, 3, N>(weights, x, size, row, block, put);
        case 2: return tile<T, 2, N>(weights, x, size, row, block, put);
        case 1: return tile<T, 1, N>(weights, x, size, row, block, put);
    }
}

// All rows of x (rows, size) times the blocks first to last - 1 of a packed matrix.
template <class T, class Put>
inline void product(const T* weights, const T* x, int64_t size, int rows, int64_t first,
                    int64_t last, Put put) {
    int64_t block = first;
    if (rows == 1)
        for (; block + 8 <= last; block += 8) tile<T, 1, 8>(weights, x, size, 0, block, put);
    for (; block + 4 <= last; block += 4) tiles<T, 4>(weights, x, size, rows, block, put);
    if (block + 2 <= last) tiles<T, 2>(weights, x, size, rows, block, put), block += 2;
    if (block < last) tiles<T, 1>(weights, x, size, rows, block, put);
}

}  // namespace decodebench
