// Attention of the rows over their cached keys, cut at fixed positions and put together in order.

#pragma once

#include "model.h"
#include "products.h"

namespace decodebench {

constexpr int QUERIES = 12;  // queries that share the reading of their keys

// Scores to weights: exponentials against their maximum; both kept in `to`.
inline void soften(float* weight, int count, float* to) {
    float top = LOWEST;
    for (int i = 0; i < count; ++i) top = weight[i] > top ? weight[i] : top;
    for (int i = count; i % LANES; ++i) weight[i] = LOWEST;
    Vec total = {};
    for (int i = 0; i < count; i += LANES) {
        Vec scores = load(weight + i);
        Vec w = scores == LOWEST ? Vec{} : exponential(scores - top);
        store(w, weight + i);
        total += w;
    }
    to[0] = top;
    to[1] = sum(total);
}

template <class T> struct Attention : Work<T> {
    using Work<T>::Work;
    using Work<T>::m;
    using Work<T>::rows;
    using Work<T>::n;
    using Work<T>::queries;
    using Work<T>::keys;
    using Work<T>::group;
    using Work<T>::chunks;
    using Work<T>::qkv;
    using Work<T>::query;
    using Work<T>::partial;
    using Work<T>::cache;

    // Queries lie by key-value head, row and head of the group: what reads the same keys is together.
    T* queries_of(int head, int row) const {
        return query + (int64_t(head) * n + row) * group * m.head_dim;
    }

    // Rotary embedding (half-split) of one head, after its own norm where the model has one.
    template <class Put> void rotate(float* x, const float* gain, int position, Put put) const {
        int half = m.head_dim / 2;
        if (gain) normalise(x, gain, m.head_dim, m.epsilon, x);
        const float* c = m.cosines + int64_t(position) * half;
        const float* s = m.sines + int64_t(position) * half;
        for (int i = 0; i < half; ++i) {
            float low = x[i], high = x[i + half];
            put(i, low * c[i] - high * s[i]);
            put(i + half, high * c[i] + low * s[i]);
        }
    }

    // Queries of a row and key-value head into `query`, keys (packed) and values into the cache.
    void place(const Layer& layer, int row, int head) const {
        float* values = qkv + int64_t(row) * (queries + 2 * keys);
        int position = rows.positions[row], size = m.head_dim;
        for (int g = head * group; g < (head + 1) * group; ++g) {
            T* to = queries_of(head, row) + (g - head * group) * size;
            rotate(values + g * size, layer.q_norm, position,
                   [&](int i, float value) { narrow(value, to[i]); });
        }
        T* k = cache(layer.keys, row, head);
        rotate(values + queries + head * size, layer.k_norm, position,
               [&](int i, float value) { narrow(value, k[packed<T>(position, i, size)]); });
        T* v = cache(layer.values, row, head) + int64_t(position) * size;
        const float* from = values + queries + keys + head * size;
        for (int i = 0; i < size; i += LANES) store(load(from + i), v + i);
    }

    float* part(int row, int head, int chunk) const {
        int64_t index = (int64_t(row) * m.heads + head) * chunks + chunk;
        return partial + index * (m.head_dim + LANES);
    }

    // Rows of one sequence and a key-value head over one chunk of keys: per query the maximum, the
    // sum and the weighted values.
    void attend(const Layer& layer, int row, int rows_here, int head, int chunk) const {
        int size = m.head_dim, start = chunk * CHUNK;
        const T* k = cache(layer.keys, row, head) + int64_t(start) * size;
        const T* v = cache(layer.values, row, head) + int64_t(start) * size;
        float scale = 1.0f / std::sqrt(float(size));
        auto seen = [&](int r) {
            int count = rows.positions[r] + 1 - start;
            return count < CHUNK ? count : CHUNK;
        };
        while (rows_here && seen(row) <= 0) ++row, --rows_here;
        int all = rows_here * group;
        for (int done = 0; done < all; done += QUERIES) {
            int some = all - done < QUERIES ? all - done : QUERIES, counts[QUERIES];
            alignas(64) float weight[QUERIES][CHUNK];
            float* to[QUERIES];
            for (int i = 0; i < some; ++i) {
                int r = row + (done + i) / group;
                counts[i] = seen(r);
                to[i] = part(r, head * group + (done + i) % group, chunk);
            }
            product(k, queries_of(head, row) + done * size, size, some, 0,
                    (counts[some - 1] + LANES - 1) / LANES,
                    [&](int i, int64_t block, const Vec* dots) {
                        store(*dots * scale, weight[i] + block * LANES);
                    });
            for (int i = 0; i < some; ++i) soften(weight[i], counts[i], to[i]);
            int i = 0;
            for (; i + 4 <= some; i += 4) weigh<4>(v, weight + i, counts + i, to + i);
            for (; i < some; ++i) weigh<1>(v, weight + i, counts + i, to + i);
        }
    }

    template <int R>
    void weigh(const T* v, const float (*weight)[CHUNK], const int* counts, float** to) const {
        int at = 0;
        for (; at + 4 * LANES <= m.head_dim; at += 4 * LANES)
            columns<R, 4>(v, weight, counts, to, at);
        for (; at < m.head_dim; at += LANES) columns<R, 1>(v, weight, counts, to, at);
    }

    template <int R, int N>
    void columns(const T* v, const float (*weight)[CHUNK], const int* counts, float** to,
                 int at) const {
        Vec total[R][N] = {};
        int i = 0;
        for (; i < counts[0]; ++i) {  // the first row sees least
            Vec column[N];
            for (int n = 0; n < N; ++n) column[n] = load(v + i * m.head_dim + at + n * LANES);
            for (int r = 0; r < R; ++r)
                for (int n = 0; n < N; ++n) total[r][n] += column[n] * weight[r][i];
        }
        for (int r = 1; r < R; ++r)
            for (int k = i; k < counts[r]; ++k)
                for (int n = 0; n < N; ++n)
                    total[r][n] += load(v + k * m.head_dim + at + n * LANES) * weight[r][k];
        for (int r = 0; r < R; ++r) std::memcpy(to[r] + LANES + at, total[r], sizeof total[r]);
    }

    // The chunks of a row put together, in order, for all its heads.
    void combine(int row, T* out) const {
        int used = rows.positions[row] / CHUNK + 1;
        for (int g = 0; g < m.heads; ++g) {
            float top = LOWEST, total = 0.0f;
            for (int c = 0; c < used; ++c) top = std::fmax(top, part(row, g, c)[0]);
            float factor[LANES];
            for (int i = 0; i < m.head_dim; i += LANES) {
                Vec value = {};
                for (int c = 0; c < used; ++c) {
                    const float* from = part(row, g, c);
                    if (c % LANES == 0) factors(row, g, c, used, top, factor);
                    if (i == 0) total += factor[c % LANES] * from[1];
                    value += load(from + LANES + i) * factor[c % LANES];
                }
                value /= total;
                store(value, out + g * m.head_dim + i);
            }
        }
    }

    void factors(int row, int head, int first, int used, float top, float* factor) const {
        Vec v;
        for (int j = 0; j < LANES; ++j)
            v[j] = first + j < used ? part(row, head, first + j)[0] - top : LOWEST;
        v = exponential(v);
        std::memcpy(factor, &v, sizeof v);
    }

    void attention(const Layer& layer) const {
        int threads = omp_get_num_threads(), me = omp_get_thread_num(), turn = 0;
        bool by_head = m.kv_heads % threads == 0;  // then no thread waits for another's keys
        auto mine = [&](int head) { return (by_head ? head : turn++) % threads == me; };
        for (int head = 0; head < m.kv_heads; ++head)
            for (int row = 0; row < n; ++row)
                if (mine(head)) place(layer, row, head);
        if (!by_head) {
#pragma omp barrier
        }
        turn = 0;
        for (int head = 0; head < m.kv_heads; ++head)
            for (int row = 0, next; row < n; row = next) {
                for (next = row + 1; next < n && rows.slots[next] == rows.slots[row];) ++next;
                for (int chunk = 0; chunk * CHUNK <= rows.positions[next - 1]; ++chunk)
                    if (mine(head)) attend(layer, row, next - row, head, chunk);
            }
    }
};

}  // namespace decodebench
