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
constexpr int64_t STEPS = 8;       // times 32 inputs of two blocks, which stay in the first cache

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
        alignas(64) Vec out[MOST_STREAMED * 2];
        bool together = m.step > m.block && rows <= PANEL && !half;
        int64_t some = together ? 4 : 2;
        for (int row = 0, here; row < rows; row += here) {
            Inputs<Bf16> from = x;
            from.at = x.place(row, 0);
            here = rows - row < MOST_STREAMED ? rows - row : MOST_STREAMED;
            for (int64_t block = first; block < last; block += some) {
                int64_t count = last - block < some ? last - block : some;
                if (together) beside(m, from, block, count, out);
                else
                    for (int64_t b = 0; b < count; ++b) streamed(m, from, here, block + b, out + b);
                for (int r = 0; r < here; ++r)
                    for (int64_t b = 0; b < count; ++b) put(row + r, block + b, out + r * some + b);
            }
        }
    }

    // A block, read once from its first byte to its last, as memory likes it, for up to 4 panels of
    // rows; out[2 * r] is row r's.
    static void streamed(const Packed<Bf16>& m, const Inputs<Bf16>& x, int rows, int64_t block,
                         Vec* out) {
        switch ((rows - 1) / PANEL) {
            case 0: return panels<1>(m, x, block, out);
            case 1: return panels<2>(m, x, block, out);
            case 2: return panels<3>(m, x, block, out);
            case 3: return panels<4>(m, x, block, out);
        }
    }

    template <int P>
    [[gnu::noinline]] static void panels(const Packed<Bf16>& m, const Inputs<Bf16>& x, int64_t block,
                                         Vec* out) {
        const int64_t row = x.row * int64_t(sizeof(Bf16));
        const Bf16 *w = m.at + block * m.block, *from = x.at;
        clear();
        for (int64_t i = 0; i < m.inputs / STEP; ++i, w += m.step, from += x.step) {
            ask_for(m.soon + (w - m.at));
            _tile_loadd(6, w, 64);
#define PANEL_OF_ROWS(p)                         \
    if constexpr (P > p) {                       \
        _tile_loadd(4, from + p * x.panel, row); \
        _tile_dpbf16ps(p, 4, 6);                 \
    }
            PANEL_OF_ROWS(0) PANEL_OF_ROWS(1) PANEL_OF_ROWS(2) PANEL_OF_ROWS(3)
#undef PANEL_OF_ROWS
        }
        if (m.inputs % STEP) {
            _tile_loadd(7, w, 64);
#define PANEL_OF_ROWS(p)                         \
    if constexpr (P > p) {                       \
        _tile_loadd(5, from + p * x.panel, row); \
        _tile_dpbf16ps(p, 5, 7);                 \
    }
            PANEL_OF_ROWS(0) PANEL_OF_ROWS(1) PANEL_OF_ROWS(2) PANEL_OF_ROWS(3)
#undef PANEL_OF_ROWS
        }
        constexpr int ROW = 2 * sizeof(Vec);
        _tile_stored(0, out, ROW);
        if constexpr (P > 1) _tile_stored(1, out + PANEL * 2, ROW);
        if constexpr (P > 2) _tile_stored(2, out + PANEL * 4, ROW);
        if constexpr (P > 3) _tile_stored(3, out + PANEL * 6, ROW);
    }

    // The memory of a tile.
    static void ask_for(const Bf16* soon) {
        for (int line = 0; line < STEP * LANES; line += 32) __builtin_prefetch(soon + line, 0, 2);
    }

    // Up to 4 blocks that lie together for each 32 inputs, for up to 16 rows; out[4 * r] is row r's.
    [[gnu::noinline]] static void beside(const Packed<Bf16>& m, const Inputs<Bf16>& x, int64_t block,
                                         int64_t count, Vec* out) {
        const int64_t row = x.row * int64_t(sizeof(Bf16));
        const Bf16 *w = m.at + block * m.block, *from = x.at;
        clear();
        for (int64_t i = 0; i < m.inputs / STEP; ++i, w += m.step, from += x.step) {
            _tile_loadd(4, from, row);
#define BLOCK_BESIDE(b)                             \
    if (count > b) {                                \
        ask_for(m.soon + (w + b * m.block - m.at)); \
        _tile_loadd(6, w + b * m.block, 64);        \
        _tile_dpbf16ps(b, 4, 6);                    \
    }
            BLOCK_BESIDE(0) BLOCK_BESIDE(1) BLOCK_BESIDE(2) BLOCK_BESIDE(3)
#undef BLOCK_BESIDE
        }
        constexpr int ROW = 4 * sizeof(Vec);
        _tile_stored(0, out, ROW);
        _tile_stored(1, out + 1, ROW);
        _tile_stored(2, out + 2, ROW);
        _tile_stored(3, out + 3, ROW);
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
        auto piece = [&](int64_t block, int64_t step) { return m.at + block * m.block + step * m.step; };
        for (int64_t block = first; block < last; block += BLOCKS) {
            int64_t end = block + BLOCKS < last ? block + BLOCKS : last;
            for (int64_t step = 0; step < steps; step += STEPS) {
                int64_t some = steps - step < STEPS ? steps - step : STEPS;
                for (int64_t pair = block; pair < end; pair += 2) {
                    const Bf16* next = pair + 2 < end         ? piece(pair + 2, step)
                                       : step + STEPS < steps ? piece(block, step + STEPS)
                                                              : piece(end, 0);
                    int64_t other = pair + 1 < end ? m.block : 0;
                    for (int64_t row = 0; row < rows; row += 2 * PANEL) {
                        int64_t below = row + PANEL < rows ? x.panel : 0;
                        Square now{piece(pair, step), other, m.step, x.place(row, step * STEP), below,
                                   x.step, x.row, some, next, 16 * row / padded,
                                   16 * (row + 2 * PANEL) / padded};
                        square(now, room + ((pair - block) * padded + row * 2) * LANES, step > 0);
                    }
                }
            }
            for (int64_t pair = block; pair < end; pair += 2) {
                auto values = reinterpret_cast<const Vec*>(room + (pair - block) * padded * LANES);
                for (int r = 0; r < rows; ++r)
                    for (int b = 0; b < 2 && pair + b < end; ++b) put(r, pair + b, values + 2 * r + b);
            }
        }
    }

    // Two blocks of a matrix by two panels of rows, `steps` times 32 inputs.
    struct Square {
        const Bf16* w;
        int64_t other, w_step;  // to the second block, to the next inputs
        const Bf16* x;
        int64_t next, x_step, row, steps;
        const Bf16* soon;     // the blocks after these
        int64_t line, until;  // the lines of each of their tiles that are asked for meanwhile
    };

    // `out`: (32 rows, 32 outputs).
    [[gnu::noinline]] static void square(const Square& s, float* out, bool resumed) {
        constexpr int ROW = 2 * LANES * sizeof(float);
        const int64_t row = s.row * int64_t(sizeof(Bf16));
        float* below = out + PANEL * 2 * LANES;
        const Bf16 *w = s.w, *x = s.x, *soon = s.soon;
        if (resumed) {
            _tile_loadd(0, out, ROW);
            _tile_loadd(1, out + LANES, ROW);
            _tile_loadd(2, below, ROW);
            _tile_loadd(3, below + LANES, ROW);
        } else {
            clear();
        }
        for (int64_t i = 0; i < s.steps; ++i, w += s.w_step, x += s.x_step, soon += s.w_step) {
            _tile_loadd(4, x, row);
            _tile_loadd(6, w, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, w + s.other, 64);
            _tile_dpbf16ps(1, 4, 7);
            for (int64_t line = s.line; line < s.until; ++line) {
                __builtin_prefetch(soon + line * 32, 0, 2);
                __builtin_prefetch(soon + s.other + line * 32, 0, 2);
            }
            _tile_loadd(5, x + s.next, row);
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
