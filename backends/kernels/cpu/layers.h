// A segment of layers, inside a parallel region: five products and an attention a layer, a barrier
// after each. What every thread needs whole and is cheap (norms) every thread computes for itself.

#pragma once

#include "attention.h"

namespace decodebench {

template <class T> struct Layers : Attention<T> {
    using Attention<T>::Attention;
    using Attention<T>::m;
    using Attention<T>::rows;
    using Attention<T>::n;
    using Attention<T>::width;
    using Attention<T>::queries;
    using Attention<T>::keys;
    using Attention<T>::hidden;
    using Attention<T>::qkv;
    using Attention<T>::activated;
    using Attention<T>::attended;
    using Attention<T>::room;
    using Attention<T>::normalised;
    using Attention<T>::norm;
    using Attention<T>::filled;
    using Attention<T>::entering;
    using Attention<T>::embedded;
    using Attention<T>::apart;
    using Attention<T>::attend_own;
    using Attention<T>::attention;
    using Attention<T>::group;
    using Attention<T>::remember;
    using Attention<T>::ring;

    static constexpr int ATTENTION = 1, MLP = 2;

    void attend(const Layer& layer) const {
        Inputs<T> x = read_by(layer);
        if (apart()) {
            Range heads = share(m.kv_heads);
            project(layer, x, heads.first * group * m.head_dim, heads.last * group * m.head_dim);
            project_keys(layer, x, heads);
            attend_own(layer);
        } else {
            Range mine = share((queries + 2 * keys) / LANES);
            project(layer, x, mine.first * LANES, mine.last * LANES);
#pragma omp barrier
            attention(layer);
        }
#pragma omp barrier
        add(Packed<T>::weights(layer.out, queries), attended);
    }

    Inputs<T> read_by(const Layer& layer) const {
        if (!layer.token_norm)
            return normalised(n, layer.input_norm, [&](int64_t r) { return residual(r); });
        return filled(n, entering, [&](const Inputs<T>& x, int64_t r) {
            norm(x, r, 0, embedded + r * width, layer.token_norm);
            norm(x, r, width, residual(r), layer.input_norm);
        });
    }

    void feed_forward(const Layer& layer) const {
        gate(Packed<T>::weights(layer.gate_up, width),
             normalised(n, layer.post_norm, [&](int64_t r) { return residual(r); }));
#pragma omp barrier
        add(Packed<T>::weights(layer.down, m.feed_forward), activated);
    }

    float* residual(int64_t r) const { return hidden + r * width; }

    // A product of `x` goes onto the residual stream.
    void add(const Packed<T>& weights, const Inputs<T>& x) const {
        Range mine = share(width / LANES);
        product(weights, x, n, mine.first, mine.last, room(),
                [&](int r, int64_t block, const Vec* value) {
                    float* to = residual(r) + block * LANES;
                    store(load(to) + *value, to);
                });
#pragma omp barrier
    }

    // Blocks of gates (even) and ups (odd) alternate, so that a pair is at hand at once.
    void gate(const Packed<T>& weights, const Inputs<T>& x) const {
        Range mine = share(m.feed_forward / LANES);
        product(weights, x, n, 2 * mine.first, 2 * mine.last, room(),
                [&](int r, int64_t block, const Vec* value) {
                    if (block % 2) return;
                    Vec gate = value[0], up = value[1];
                    store(gate / (exponential(-gate) + 1.0f) * up,
                          activated.place(r, block / 2 * LANES));
                });
    }

    // From boundary `from` (null: from the rows' given states, else the tokens' embeddings) to
    // boundary `to`.
    void segment(int first, int last, float* from, float* to) const {
        Range mine = share(width);
        if (reads_ahead(m)) {
            embed(embedded, mine);
            for (int r = 0; r < n; ++r) copy(before(to, r), residual(r), mine);
        } else if (from || rows.states) {
            begin(from, mine);
        } else {
            embed(hidden, mine);
        }
#pragma omp barrier
        if (!first) tap(0, mine);
        for (int l = first; l < last; ++l) {
            int left_out = m.skipped ? m.skipped[l] : 0;
            if (!(left_out & ATTENTION)) attend(m.layers[l]);
            if (!(left_out & MLP)) feed_forward(m.layers[l]);
            tap(l + 1, mine);
        }
        for (int r = 0; r < n; ++r) copy(residual(r), ring(to, r), mine);
    }

    // The states in boundary `from`, or (null) those that are given.
    void begin(float* from, Range some) const {
        for (int r = 0; r < n; ++r)
            copy(from ? ring(from, r) : rows.states + int64_t(r) * width, residual(r), some);
    }

    // Of layers first to last - 1 the keys and values alone, as if each began with the states in
    // boundary `from`, or (null) those that are given. Where every thread has heads and the norms for
    // itself, none waits for another.
    void fill(int first, int last, float* from) const {
        Range mine = share(width);
        begin(from, mine);
#pragma omp barrier
        int threads = omp_get_num_threads(), me = omp_get_thread_num();
        bool alone = apart() && n <= FEW;
        Range heads = share(m.kv_heads);
        for (int l = first; l < last; ++l) {
            const Layer& layer = m.layers[l];
            Inputs<T> x = read_by(layer);
            if (alone) {
                project_keys(layer, x, heads);
            } else {
                Range some = share(2 * keys / LANES);
                project(layer, x, queries + some.first * LANES, queries + some.last * LANES);
#pragma omp barrier
            }
            for (int row = 0, turn = 0; row < n; ++row)
                for (int head = 0; head < m.kv_heads; ++head, ++turn)
                    if (alone ? head >= heads.first && head < heads.last : turn % threads == me)
                        remember(layer, row, head);
            if (!alone) {
#pragma omp barrier
            }
        }
    }

    // Of the rows' queries, keys and values, which lie one behind the other, numbers `first` to
    // `last` - 1.
    void project(const Layer& layer, const Inputs<T>& x, int64_t first, int64_t last) const {
        int64_t outputs = queries + 2 * keys;
        product(Packed<T>::weights(layer.qkv, entering), x, n, first / LANES, last / LANES, room(),
                [&](int r, int64_t block, const Vec* value) {
                    Vec bias = layer.qkv_bias ? load(layer.qkv_bias + block * LANES) : Vec{};
                    store(*value + bias, qkv + int64_t(r) * outputs + block * LANES);
                });
    }

    // The keys and values of some heads.
    void project_keys(const Layer& layer, const Inputs<T>& x, Range heads) const {
        int64_t start = queries + heads.first * m.head_dim, end = queries + heads.last * m.head_dim;
        project(layer, x, start, end);
        project(layer, x, start + keys, end + keys);
    }

    // The tokens' embeddings.
    void embed(float* out, Range some) const {
        const T* table = static_cast<const T*>(m.embedding);
        for (int r = 0; r < n; ++r)
            for (int64_t i = some.first; i < some.last; ++i)
                out[int64_t(r) * width + i] = widen(table[packed<T>(rows.tokens[r], i, width)]);
    }

    // What EAGLE-3's layer begins with: a state that is given, or its own output a position before.
    const float* before(float* boundary, int r) const {
        if (rows.states) return rows.states + int64_t(r) * width;
        int64_t place = (rows.positions[r] + m.ring - 1) % m.ring;
        return boundary + (int64_t(rows.slots[r]) * m.ring + place) * width;
    }

    // The states after so many layers go where they are wanted.
    void tap(int layers, Range some) const {
        if (!m.taps || m.taps[layers] < 0) return;
        for (int r = 0; r < n; ++r) {
            int64_t place = int64_t(rows.slots[r]) * m.positions + rows.positions[r];
            copy(residual(r), m.states + (place * m.tap_count + m.taps[layers]) * width, some);
        }
    }

    static void copy(const float* from, float* to, Range some) {
        std::memcpy(to + some.first, from + some.first, sizeof(float) * (some.last - some.first));
    }
};

}  // namespace decodebench
