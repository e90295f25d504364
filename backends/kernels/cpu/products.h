// Products of a packed matrix with rows of inputs. Each output is one chain of multiply-adds in the
// order of its inputs, so that it depends on its row alone, however many rows there are.

#pragma once

#include "halved_products.h"
#include "tiles.h"

namespace decodebench {

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
#elif defined(DECODEBENCH_HALVES)
template <> struct Dot<Bf16> {
    static constexpr int GROUP = 2;  // a shift or a mask makes one of two inputs a float
};
#endif

// Where input k of output n lies in a packed matrix of `size` inputs.
template <class T> inline int64_t packed(int64_t n, int64_t k, int64_t size) {
    constexpr int G = Dot<T>::GROUP;
    return n / LANES * LANES * size + k / G * G * LANES + n % LANES * G + k % G;
}

#if !defined(DECODEBENCH_HALVES)
// N blocks of outputs for R rows.
template <class T, int R, int N>
[[gnu::noinline]] void dot(const Packed<T>& m, const Inputs<T>& x, int row, int64_t block, Vec* out) {
    typedef Dot<T> D;
    Vec total[R][N] = {};
    const T* from[R];
    for (int r = 0; r < R; ++r) from[r] = x.place(row + r, 0);
    const T* w = m.at + block * m.block;
    for (int64_t first = 0; first < m.inputs; first += STEP) {
        int64_t here = m.inputs - first < STEP ? m.inputs - first : STEP;
        for (int64_t k = 0; k < here; k += D::GROUP) {
            decltype(D::weights(w)) column[N];
            for (int n = 0; n < N; ++n) column[n] = D::weights(w + n * m.block + k * LANES);
            for (int r = 0; r < R; ++r) {
                auto value = D::inputs(from[r] + k);
                for (int n = 0; n < N; ++n) total[r][n] = D::add(total[r][n], column[n], value);
            }
        }
        w += m.step;
        for (int r = 0; r < R; ++r) from[r] += x.step;
    }
    std::memcpy(out, total, sizeof total);
}

// Up to 6 rows.
template <class T, int N>
inline void dots(const Packed<T>& m, const Inputs<T>& x, int row, int rows, int64_t block, Vec* out) {
    switch (rows) {
        case 6: return dot<T, 6, N>(m, x, row, block, out);
        case 5: return dot<T, 5, N>(m, x, row, block, out);
        case 4: return dot<T, 4, N>(m, x, row, block, out);
        case 3: return dot<T, 3, N>(m, x, row, block, out);
        case 2: return dot<T, 2, N>(m, x, row, block, out);
        case 1: return dot<T, 1, N>(m, x, row, block, out);
    }
}

#endif

// put(row, block, values), for the rows of x times the blocks first to last - 1 of a packed matrix. Of
// two blocks, from an even distance to `first` on, the second's values come right after the first's.
// `room` has room_floats(rows) for this thread.
template <class T, class Put>
inline void product(const Packed<T>& m, const Inputs<T>& x, int rows, int64_t first, int64_t last,
                    float* room, Put put) {
    if (Tiles<T>::used()) return Tiles<T>::product(m, x, rows, first, last, room, put);
#if defined(DECODEBENCH_HALVES)
    halved_product<T, Dot<T>::GROUP>(m, x, rows, first, last, put);
#else
    alignas(64) Vec out[24];
    for (int64_t block = first, some; block < last; block += some) {
        int64_t left = last - block;
        some = left >= 8 && rows == 1 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (int row = 0, here; row < rows; row += here) {
            here = rows - row < 6 ? rows - row : 6;
            if (some == 8) dot<T, 1, 8>(m, x, 0, block, out);
            else if (some == 4) dots<T, 4>(m, x, row, here, block, out);
            else if (some == 2) dots<T, 2>(m, x, row, here, block, out);
            else dots<T, 1>(m, x, row, here, block, out);
            for (int r = 0; r < here; ++r)
                for (int64_t n = 0; n < some; ++n) put(row + r, block + n, out + r * some + n);
        }
    }
#endif
}

}  // namespace decodebench
