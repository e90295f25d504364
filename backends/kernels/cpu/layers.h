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
    using Attention<T>::own;
    using Attention<T>::normalised;
    using Attention<T>::attention;
    using Attention<T>::combine;
    using Attention<T>::ring;

    void run(const Layer& layer) const {
        int outputs = queries + 2 * keys;
        const T* x = normalised(layer.input_norm);
        Range mine = share(outputs / LANES);
        product(static_cast<const T*>(layer.qkv), x, width, n, mine.first, mine.last,
                [&](int r, int64_t block, const Vec* value) {
                    Vec bias = layer.qkv_bias ? load(layer.qkv_bias + block * LANES) : Vec{};
                    store(*value + bias, qkv + int64_t(r) * outputs + block * LANES);
                });
#pragma omp barrier
        attention(layer);
#pragma omp barrier
        T* attended = own();
        for (int r = 0; r < n; ++r) combine(r, attended + int64_t(r) * queries);
        auto add = [&](int r, int64_t block, const Vec* value) {
            float* to = hidden + int64_t(r) * width + block * LANES;
            store(load(to) + *value, to);
        };
        mine = share(width / LANES);
        product(static_cast<const T*>(layer.out), attended, queries, n, mine.first, mine.last, add);
#pragma omp barrier
        x = normalised(layer.post_norm);
        gate(static_cast<const T*>(layer.gate_up), x);
#pragma omp barrier
        product(static_cast<const T*>(layer.down), activated, m.feed_forward, n, mine.first,
                mine.last, add);
#pragma omp barrier
    }

    // Blocks of gates (even) and ups (odd) alternate, so that a pair is at hand at once.
    void gate(const T* weights, const T* x) const {
        Range mine = share(m.feed_forward / LANES);
        product(weights, x, width, n, 2 * mine.first, 2 * mine.last,
                [&](int r, int64_t block, const Vec* value) {
                    if (block % 2) return;
                    Vec gate = value[0], up = value[1];
                    store(gate / (exponential(-gate) + 1.0f) * up,
                          activated + int64_t(r) * m.feed_forward + block / 2 * LANES);
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
        for (int l = first; l < last; ++l) run(m.layers[l]);
        for (int r = 0; r < n; ++r)
            std::memcpy(ring(to, r) + mine.first,
                        hidden + int64_t(r) * width + mine.first,
                        sizeof(float) * (mine.last - mine.first));
    }
};

}  // namespace decodebench
