// Products in bfloat16 on the matrix tiles of Intel processors (AMX): 16 rows by 16 outputs, 32 inputs
// at an instruction.
//
// TDPBF16PS adds, in float, the even and the odd inputs of its 32 each in order, then both to the
// output: a row's outputs depend on its own inputs. Every number of rows goes through it.

#pragma once

#include "operands.h"
#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace decodebench {

constexpr int MOST_STREAMED = 64;  // rows that a pass over the matrix takes along
constexpr int BLOCKS = 8;          // of outputs that many rows compute at a time
constexpr int64_t STEPS = 16;      // of inputs of two blocks: half of a first-level cache

// Floats of a thread's own that a product needs.
inline int64_t room_floats(int64_t rows) {
    return rows <= MOST_STREAMED ? 0 : rounded(rows, 2 * PANEL) * BLOCKS * LANES;
}

template <class T> struct Tiles {
    static constexpr bool used() { return false; }
    template <class... A> static void product(A&&...) {}
};

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)

inline bool tiles_allowed = false;

// Linux gives a process the tiles when it asks, once and for all its threads.
inline bool ask_for_tiles() {
    constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

// Tiles 0 to 3: outputs; 4 and 5: rows; 6 and 7: the matrix. Where the inputs are no multiple of 32,
// 5 and 7 are half as long, for the last 16.
inline void configure(int rows, bool half) {
    struct alignas(64) {
        uint8_t palette = 1, start = 0, reserved[14] = {};
        uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {};
    } shape;
    for (int i = 0; i < 6; ++i) shape.rows[i] = uint8_t(rows < PANEL ? rows : PANEL);
    shape.rows[6] = 16;
    shape.rows[7] = half ? 8 : 16;
    if (half) shape.bytes[5] = 32;
    asm volatile("ldtilecfg %0" ::"m"(shape));
}

template <> struct Tiles<Bf16> {
    static bool used() { return tiles_allowed; }

    template <class Put>
    static void product(const Packed<Bf16>& m, const Inputs<Bf16>& x, int rows, int64_t first,
                        int64_t last, float* room, Put put) {
        bool half = m.inputs % STEP;
        asm volatile("" ::: "memory");  // the loads of tiles name no memory to the compiler
        configure(rows, half);
        if (rows > MOST_STREAMED && !half) return blocked(m, x, rows, first, last, room, put);
        for (int row = 0; row < rows; row += MOST_STREAMED) {
            Inputs<Bf16> from = x;
            from.at = x.place(row, 0);
            auto shifted = [&](int r, int64_t block, const Vec* value) {
                put(row + r, block, value);
            };
            int here = rows - row < MOST_STREAMED ? rows - row : MOST_STREAMED;
            switch ((here - 1) / PANEL) {
                case 0: streamed<1>(m, from, here, first, last, shifted); break;
                case 1: streamed<2>(m, from, here, first, last, shifted); break;
                case 2: streamed<3>(m, from, here, first, last, shifted); break;
                case 3: streamed<4>(m, from, here, first, last, shifted); break;
            }
        }
    }

    // P panels of rows: the matrix is read once from its first byte to its last, as memory likes it.
    template <int P, class Put>
    static void streamed(const Packed<Bf16>& m, const Inputs<Bf16>& x, int rows, int64_t first,
                         int64_t last, Put put) {
        constexpr int AHEAD = 1024;  // bytes
        alignas(64) Vec out[P * PANEL][2];
        const int64_t row = x.row * int64_t(sizeof(Bf16));
        for (int64_t block = first; block < last; ++block) {
            const Bf16 *w = m.at + block * m.block, *from = x.at;
            clear();
            for (int64_t i = 0; i < m.inputs / STEP; ++i, w += m.step, from += x.step) {
                for (int line = 0; line < 1024; line += 64)
                    __builtin_prefetch(reinterpret_cast<const char*>(w) + AHEAD + line, 0, 2);
                _tile_loadd(6, w, 64);
#define PANEL_OF_ROWS(p)                             \
    if constexpr (P > p) {                           \
        _tile_loadd(4, from + p * x.panel, row);     \
        _tile_dpbf16ps(p, 4, 6);                     \
    }
                PANEL_OF_ROWS(0) PANEL_OF_ROWS(1) PANEL_OF_ROWS(2) PANEL_OF_ROWS(3)
#undef PANEL_OF_ROWS
            }
            if (m.inputs % STEP) {
                _tile_loadd(7, w, 64);
#define PANEL_OF_ROWS(p)                             \
    if constexpr (P > p) {                           \
        _tile_loadd(5, from + p * x.panel, row);     \
        _tile_dpbf16ps(p, 5, 7);                     \
    }
                PANEL_OF_ROWS(0) PANEL_OF_ROWS(1) PANEL_OF_ROWS(2) PANEL_OF_ROWS(3)
#undef PANEL_OF_ROWS
            }
            int side = (block - first) % 2;
            _tile_stored(0, &out[0][side], sizeof out[0]);
            if constexpr (P > 1) _tile_stored(1, &out[PANEL][side], sizeof out[0]);
            if constexpr (P > 2) _tile_stored(2, &out[2 * PANEL][side], sizeof out[0]);
            if constexpr (P > 3) _tile_stored(3, &out[3 * PANEL][side], sizeof out[0]);
            if (side || block + 1 == last)
                for (int r = 0; r < rows; ++r)
                    for (int b = 0; b <= side; ++b) put(r, block - side + b, out[r] + b);
        }
    }

    static void clear() {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }

    // Many rows: two panels by two blocks at an inner step, over as many inputs as the caches hold.
    // The outputs wait in `room` meanwhile, so that their chains are those of few rows.
    template <class Put>
    static void blocked(const Packed<Bf16>& m, const Inputs<Bf16>& x, int rows, int64_t first,
                        int64_t last, float* room, Put put) {
        const int64_t steps = m.inputs / STEP, padded = rounded(rows, 2 * PANEL);
        for (int64_t block = first; block < last; block += BLOCKS) {
            int64_t end = block + BLOCKS < last ? block + BLOCKS : last;
            for (int64_t step = 0; step < steps; step += STEPS) {
                int64_t some = steps - step < STEPS ? steps - step : STEPS;
                for (int64_t pair = block; pair < end; pair += 2)
                    for (int64_t row = 0; row < rows; row += 2 * PANEL) {
                        float* out = room + ((pair - block) * padded + row * 2) * LANES;
                        const Bf16* w = m.at + pair * m.block + step * m.step;
                        int64_t other = pair + 1 < end ? m.block : 0;
                        const Bf16* from = x.place(row, step * STEP);
                        int64_t next = row + PANEL < rows ? x.panel : 0;
                        square(w, other, m.step, from, next, x, some, out, step > 0);
                    }
            }
            for (int64_t pair = block; pair < end; pair += 2) {
                auto values = reinterpret_cast<const Vec*>(room + (pair - block) * padded * LANES);
                for (int r = 0; r < rows; ++r)
                    for (int b = 0; b < 2 && pair + b < end; ++b) put(r, pair + b, values + 2 * r + b);
            }
        }
    }

    // Two panels, two blocks, `steps` times 32 inputs; `out` (32 rows, 32 outputs).
    static void square(const Bf16* w, int64_t other, int64_t stride, const Bf16* x, int64_t next,
                       const Inputs<Bf16>& like, int64_t steps, float* out, bool resumed) {
        constexpr int ROW = 2 * LANES * sizeof(float);
        const int64_t row = like.row * int64_t(sizeof(Bf16));
        float *below = out + PANEL * 2 * LANES;
        if (resumed) {
            _tile_loadd(0, out, ROW);
            _tile_loadd(1, out + LANES, ROW);
            _tile_loadd(2, below, ROW);
            _tile_loadd(3, below + LANES, ROW);
        } else {
            clear();
        }
        for (int64_t i = 0; i < steps; ++i, w += stride, x += like.step) {
            _tile_loadd(4, x, row);
            _tile_loadd(6, w, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, w + other, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, x + next, row);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, out, ROW);
        _tile_stored(1, out + LANES, ROW);
        _tile_stored(2, below, ROW);
        _tile_stored(3, below + LANES, ROW);
    }
};

inline void release_tiles() {
    if (tiles_allowed) _tile_release();
}

#else

inline void release_tiles() {}

#endif

}  // namespace decodebench
