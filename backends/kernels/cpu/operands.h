// How the two sides of a product lie in memory.

#pragma once

#include "vectors.h"

namespace decodebench {

constexpr int STEP = 32;     // inputs taken together: those of one matrix tile
constexpr int PANEL = 16;    // rows taken together
constexpr int AHEAD = 1024;  // bytes

inline int64_t rounded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// Matrices are packed so that the lanes of a vector are 16 outputs: blocks of 16 outputs, in each the
// inputs one after another, Dot::GROUP of them side by side. No sum over lanes is ever needed, and in
// bfloat16 16 outputs by 32 inputs are a matrix tile as the processor wants it.
template <class T> struct Packed {
    const T* at;
    int64_t inputs;
    int64_t block, step;  // numbers from one block of outputs, and from 32 inputs, to the next
    const T* soon;        // read after it: each place of `at` asks memory for the same place of this

    static Packed whole(const void* at, int64_t inputs, const T* soon) {
        return {static_cast<const T*>(at), inputs, LANES * inputs, LANES * STEP, soon};
    }
    // Weights are read from one end to the other, and the hardware's own prefetcher stops at a
    // page's end.
    static Packed weights(const void* at, int64_t inputs) {
        return whole(at, inputs, static_cast<const T*>(at) + AHEAD / sizeof(T));
    }
};

// Rows of inputs: 32 of a row side by side, the rest where the distances say.
template <class T> struct Inputs {
    T* at;
    int64_t row, step, panel;  // numbers to the next row of a panel, 32 inputs, panel of 16 rows

    // Of a panel the same 32 inputs of all rows are together: one matrix tile.
    static Inputs tiled(T* at, int rows, int64_t size) {
        int together = rows < PANEL ? rows : PANEL;
        return {at, STEP, int64_t(STEP) * together, PANEL * rounded(size, STEP)};
    }
    static Inputs by_row(T* at, int64_t size) { return {at, size, STEP, PANEL * size}; }

    T* place(int64_t r, int64_t k) const {
        return at + r / PANEL * panel + r % PANEL * row + k / STEP * step + k % STEP;
    }
};

// Numbers that `rows` rows of `size` inputs take; the last panel is read whole.
inline int64_t tiled_size(int64_t rows, int64_t size) {
    return (rows < PANEL ? rows : rounded(rows, PANEL)) * rounded(size, STEP);
}

}  // namespace decodebench
