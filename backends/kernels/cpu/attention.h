// Attention of the rows over their cached keys, cut at fixed positions and put together in order.

#pragma once

#include "model.h"

namespace decodebench {

// Scores to weights: exponentials against their maximum, as the product takes them, and 0 up to
// `size`; maximum and sum into `to`.
template <class T> inline void soften(float* scores, int count, int size, T* weights, float* to) {
    Vec most = Vec{} + LOWEST;
    for (int i = count; i < size; ++i) scores[i] = LOWEST;
    for (int i = 0; i < size; i += LANES) {
        Vec here = load(scores + i);
        most = choose(here > most, here, most);
    }
    float top = highest(most);
    Vec total = {};
    for (int i = 0; i < size; i += LANES) {
        Vec here = load(scores + i);
        store(choose(here == LOWEST, Vec{}, exponential(here - top)), weights + i);
        total += load(weights + i);
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
    using Work<T>::part_size;
    using Work<T>::qkv;
    using Work<T>::query;
    using Work<T>::partial;
    using Work<T>::attended;
    using Work<T>::cache;
    using Work<T>::room;
    using Work<T>::run_end;

    // Queries lie by key-value head, row and head of the group: what reads the same keys is together.
    T* queries_of(int head, int row) const {
        return query + (int64_t(head) * n + row) * group * m.head_dim;
    }

    // Rotary embedding (half-split) of one head, after its own norm where the model has one.
    void rotate(float* x, const float* gain, int position) const {
        int half = m.head_dim / 2;
        if (gain)
            normalise(x, gain, m.head_dim, m.epsilon, [&](int i, Vec value) { store(value, x + i); });
        const float* c = m.cosines + int64_t(position) * half;
        const float* s = m.sines + int64_t(position) * half;
        float* __restrict upper = x + half;
        for (int i = 0; i < half; ++i) {
            float low = x[i], high = upper[i];
            x[i] = low * c[i] - high * s[i];
            upper[i] = high * c[i] + low * s[i];
        }
    }

    // Values lie by 32 positions, in each like a packed matrix of head_dim outputs.
    int64_t value_place(int position, int i) const {
        int64_t piece = int64_t(position) / STEP * STEP * m.head_dim;
        return piece + packed<T>(i, position % STEP, STEP);
    }

    // Queries of a row and key-value head into `query`, keys (packed) and values into the cache.
    void place(const Layer& layer, int row, int head) const {
        float* found = qkv + int64_t(row) * (queries + 2 * keys);
        int position = rows.positions[row], size = m.head_dim;
        T* q = queries_of(head, row);
        for (int g = 0; g < group; ++g) {
            float* from = found + (head * group + g) * size;
            rotate(from, layer.q_norm, position);
            for (int i = 0; i < size; i += LANES) store(load(from + i), q + g * size + i);
        }
        remember(layer, row, head);
    }

    // A row's key and value of one head into the cache.
    void remember(const Layer& layer, int row, int head) const {
        float* found = qkv + int64_t(row) * (queries + 2 * keys);
        int position = rows.positions[row], size = m.head_dim;
        T *k = cache(layer.keys, row, head), *v = cache(layer.values, row, head);
        float *key = found + queries + head * size, *value = key + keys;
        rotate(key, layer.k_norm, position);
        if (position % STEP == 0) clear_values(v, row);
        T* kept = rows.back ? aside(layer, row, head) : nullptr;
        for (int i = 0; i < size; i += LANES) {
            T sixteen[2][LANES];
            store(load(key + i), sixteen[0]);
            store(load(value + i), sixteen[1]);
            write(k, v, position, i, sixteen[0], sixteen[1]);
            if (!kept) continue;
            std::memcpy(kept + i, sixteen[0], sizeof sixteen[0]);
            std::memcpy(kept + keys + i, sixteen[1], sizeof sixteen[1]);
        }
    }

    // Numbers `i` to `i` + 15 of a head's key and value into its part of the cache.
    void write(T* k, T* v, int position, int i, const T* key, const T* value) const {
        constexpr int G = Dot<T>::GROUP;
        T* to = k + packed<T>(position, i, m.head_dim);
        for (int j = 0; j < LANES; j += G) std::memcpy(to + j * LANES, key + j, G * sizeof(T));
        to = v + value_place(position, i);
        for (int j = 0; j < LANES; ++j) to[j * G] = value[j];
    }

    // Where the key of a row of a tree is kept; its value is `keys` numbers further on.
    T* aside(const Layer& layer, int row, int head) const {
        int64_t place = int64_t(row) * rows.layers + (&layer - m.layers);
        return static_cast<T*>(rows.aside) + place * 2 * keys + head * m.head_dim;
    }

    // Keys and values of rows of a tree from aside into the cache.
    void keep(int count, const int32_t* numbers) const {
        for (int c = 0; c < count; ++c)
            for (int l = 0; l < rows.layers; ++l)
                for (int head = 0; head < m.kv_heads; ++head) {
                    int row = numbers[c];
                    const Layer& layer = m.layers[l];
                    const T* from = aside(layer, row, head);
                    for (int i = 0; i < m.head_dim; i += LANES)
                        write(cache(layer.keys, row, head), cache(layer.values, row, head),
                              rows.positions[row], i, from + i, from + keys + i);
                }
    }

    // Of the 32 values that a row is the first of, those that no row of this call writes: a product
    // reads all 32, and what memory held before must not be NaN.
    void clear_values(T* v, int row) const {
        int start = rows.positions[row], end = run_end(row);
        for (int p = rows.positions[end - 1] + 1; p < start + STEP; ++p)
            for (int i = 0; i < m.head_dim; ++i) v[value_place(p, i)] = T{};
    }

    // Rows of one sequence: up to QUERIES queries of a key-value head, from number `first` on.
    struct Task {
        int row, next, head, first, count;  // next: the row of the next sequence
    };

    template <class Do> void tasks(int head, Do act) const {
        for (int row = 0; row < n; row = run_end(row)) tasks_of_run(head, row, act);
    }

    template <class Do> void tasks_of_run(int head, int row, Do act) const {
        int next = run_end(row), all = (next - row) * group;
        for (int done = 0; done < all; done += QUERIES)
            act(Task{row, next, head, done, all - done < QUERIES ? all - done : QUERIES});
    }

    int row_of(const Task& task, int i) const { return task.row + (task.first + i) / group; }

    int chunks_of(int row) const { return rows.positions[row] / CHUNK + 1; }

    // A task over one chunk of keys. to(i): where query i's maximum, sum and weighted values go.
    template <class To> void attend(const Layer& layer, const Task& task, int chunk, To to) const {
        int size = m.head_dim, start = chunk * CHUNK;
        auto seen = [&](int i) {
            int count = rows.positions[row_of(task, i)] + 1 - start;
            return count < 0 ? 0 : count < CHUNK ? count : CHUNK;
        };
        int most = int(rounded(seen(task.count - 1), STEP));
        alignas(64) float scores[QUERIES][CHUNK];
        alignas(64) T weights[QUERIES][CHUNK];
        float scale = 1.0f / std::sqrt(float(size));
        const T* k = cache(layer.keys, task.row, task.head) + int64_t(start) * size;
        const T* v = cache(layer.values, task.row, task.head) + int64_t(start) * size;
        const T* then = k + CHUNK * size;
        if (seen(task.count - 1) < CHUNK)
            then = task.next < n ? cache(layer.keys, task.next, task.head) : k;
        product(Packed<T>::whole(k, size, v),
                Inputs<T>::by_row(queries_of(task.head, task.row) + task.first * size, size),
                task.count, 0, most / LANES, nullptr, [&](int i, int64_t block, const Vec* dots) {
                    store(*dots * scale, scores[i] + block * LANES);
                });
        for (int i = 0; i < task.count; ++i) soften(scores[i], seen(i), most, weights[i], to(i));
        product(Packed<T>{v, most, LANES * STEP, int64_t(STEP) * size, then},
                Inputs<T>::by_row(weights[0], CHUNK), task.count, 0, size / LANES, nullptr,
                [&](int i, int64_t block, const Vec* value) {
                    store(*value, to(i) + LANES + block * LANES);
                });
    }

    // The chunks of a query put together, in order. `parts`: that of the first, the others after it.
    void combine(int row, int head, const float* parts) const {
        int used = chunks_of(row);
        float top = LOWEST, total = 0.0f;
        for (int c = 0; c < used; ++c) top = std::fmax(top, parts[c * part_size]);
        for (int i = 0; i < m.head_dim; i += LANES) {
            Vec value = {}, factor = {};
            for (int c = 0; c < used; ++c) {
                const float* from = parts + c * part_size;
                if (c % LANES == 0) factor = factors(from, used - c, top);
                if (i == 0) total += factor[c % LANES] * from[1];
                value += load(from + LANES + i) * factor[c % LANES];
            }
            store(value / total, attended.place(row, head * m.head_dim + i));
        }
    }

    Vec factors(const float* parts, int count, float top) const {
        Vec v;
        for (int j = 0; j < LANES; ++j) v[j] = j < count ? parts[j * part_size] - top : LOWEST;
        return exponential(v);
    }

    // A task over all its keys, by one thread.
    void attend_whole(const Layer& layer, const Task& task) const {
        float* parts = room();
        auto query = [&](int i) { return parts + int64_t(i) * chunks * part_size; };
        for (int chunk = 0; chunk < chunks_of(row_of(task, task.count - 1)); ++chunk)
            attend(layer, task, chunk, [&](int i) { return query(i) + chunk * part_size; });
        for (int i = 0; i < task.count; ++i)
            combine(row_of(task, i), task.head * group + (task.first + i) % group, query(i));
    }

    float* shared_part(int row, int head) const {
        return partial + (int64_t(row) * m.heads + head) * chunks * part_size;
    }

    // Whether each thread has heads of its own, as many as the others, so that none waits for another's
    // queries and keys.
    bool apart() const { return m.kv_heads % omp_get_num_threads() == 0; }

    // The heads of this thread alone. Rows of trees come in preorder, and each stretch of them is written
    // right before it attends: then the cache holds what a row follows at the very places where plain
    // decoding has it, since what was written over them follows other rows.
    void attend_own(const Layer& layer) const {
        Range mine = share(m.kv_heads);
        for (int head = int(mine.first); head < mine.last; ++head)
            for (int row = 0, next, placed = 0; row < n; row = next) {
                next = run_end(row);
                for (int end = rows.back ? next : n; placed < end; ++placed) place(layer, placed, head);
                tasks_of_run(head, row, [&](const Task& task) { attend_whole(layer, task); });
            }
    }

    // The attention of all rows into `attended`, where heads are nobody's: few rows share out their
    // chunks, many their tasks. In trees a head is one thread's all the same.
    void attention(const Layer& layer) const {
        if (rows.back) return attend_own(layer);
        int threads = omp_get_num_threads(), me = omp_get_thread_num(), turn = 0;
        auto mine = [&] { return turn++ % threads == me; };
        for (int row = 0; row < n; ++row)
            for (int head = 0; head < m.kv_heads; ++head)
                if (mine()) place(layer, row, head);
#pragma omp barrier
        turn = 0;
        bool whole = n > SPLIT;
        for (int head = 0; head < m.kv_heads; ++head)
            tasks(head, [&](const Task& task) {
                if (whole) {
                    if (mine()) attend_whole(layer, task);
                    return;
                }
                int last = chunks_of(row_of(task, task.count - 1));
                for (int chunk = 0; chunk < last; ++chunk)
                    if (mine()) attend(layer, task, chunk, [&](int i) {
                        int g = head * group + (task.first + i) % group;
                        return shared_part(row_of(task, i), g) + chunk * part_size;
                    });
            });
        if (whole) return;
#pragma omp barrier
        Range some = share(int64_t(n) * m.heads);
        for (int64_t i = some.first; i < some.last; ++i) {
            int row = int(i / m.heads), head = int(i % m.heads);
            combine(row, head, shared_part(row, head));
        }
    }
};

}  // namespace decodebench
