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
    using Attention<T>::attention;
    using Attention<T>::ring;

    static constexpr int ATTENTION = 1, MLP = 2;

    void attend(const Layer& layer) const {
        int outputs = queries + 2 * keys;
        Inputs<T> x = normalised(n, layer.input_norm, [&](int64_t r) { return residual(r); });
        Range mine = share(outputs / LANES);
        product(Packed<T>::weights(layer.qkv, width), x, n, mine.first, mine.last, room(),
                [&](int r, int64_t block, const Vec* value) {
                    Vec bias = layer.qkv_bias ? load(layer.qkv_bias + block * LANES) : Vec{};
                    store(*value + bias, qkv + int64_t(r) * outputs + block * LANES);
                });
#pragma omp barrier
        attention(layer);
#pragma omp barrier
        add(Packed<T>::weights(layer.out, queries), attended);
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

    // From boundary `from` (null: from the tokens' embeddings) to boundary `to`.
    void segment(int first, int last, float* from, float* to) const {
        Range mine = share(width);
        const T* table = static_cast<const T*>(m.embedding);
        for (int r = 0; r < n; ++r)
            for (int64_t i = mine.first; i < mine.last; ++i)
                hidden[int64_t(r) * width + i] =
                    from ? ring(from, r)[i] : widen(table[packed<T>(rows.tokens[r], i, width)]);
#pragma omp barrier
        for (int l = first; l < last; ++l) {
            int left_out = m.skipped ? m.skipped[l] : 0;
            if (!(left_out & ATTENTION)) attend(m.layers[l]);
            if (!(left_out & MLP)) feed_forward(m.layers[l]);
        }
        for (int r = 0; r < n; ++r)
            std::memcpy(ring(to, r) + mine.first,
                        hidden + int64_t(r) * width + mine.first,
                        sizeof(float) * (mine.last - mine.first));
    }
};

}  // namespace decodebench
