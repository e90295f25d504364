// What a call is given, and the memory that its threads share.

#pragma once

#include "vectors.h"

extern "C" {

struct Layer {
    const float *input_norm, *post_norm, *qkv_bias, *q_norm, *k_norm;
    const void *qkv, *out, *gate_up, *down;
    void *keys, *values;  // (slots, kv_heads, max_len, head_dim)
};

struct Model {
    int32_t dtype, width, feed_forward, heads, kv_heads, head_dim, max_len, ring, threads;
    float epsilon;
    const void* embedding;  // packed, as every matrix
    const float *norm, *cosines, *sines;  // (max_len, head_dim / 2)
    const Layer* layers;
    char* shared;    // see shared_bytes
    char* own;       // own_bytes for each thread
    int64_t own_bytes;
};

struct Rows {
    int32_t count;
    const int32_t *slots, *positions, *tokens;
};

// A head for some of the rows: their numbers, and the most probable token and its probability.
struct Head {
    const void* matrix;
    int64_t vocabulary;
    float* from;  // the boundary buffer before it
    float* parts;
    int32_t count;
    const int32_t* rows;
    int32_t* tokens;
    float* confidences;
};

}

namespace decodebench {

constexpr int CHUNK = 128;  // keys per attention task

template <class T> struct Work {
    const Model& m;
    const Rows& rows;
    int n, width, queries, keys, group, chunks;
    float *hidden, *qkv, *partial;  // shared by the threads
    T *activated, *query;

    Work(const Model& model, const Rows& given)
        : m(model), rows(given), n(given.count), width(m.width), queries(m.heads * m.head_dim),
          keys(m.kv_heads * m.head_dim), group(m.heads / m.kv_heads),
          chunks((m.max_len + CHUNK - 1) / CHUNK) {
        char* at = m.shared;
        auto take = [&](int64_t bytes) {
            char* here = at;
            at += (bytes + 63) / 64 * 64;
            return here;
        };
        hidden = reinterpret_cast<float*>(take(4ll * n * width));
        qkv = reinterpret_cast<float*>(take(4ll * n * (queries + 2 * keys)));
        activated = reinterpret_cast<T*>(take(int64_t(sizeof(T)) * n * m.feed_forward));
        query = reinterpret_cast<T*>(take(int64_t(sizeof(T)) * n * queries));
        partial = reinterpret_cast<float*>(take(0));
    }

    T* own() const {
        return reinterpret_cast<T*>(m.own + m.own_bytes * omp_get_thread_num());
    }

    T* cache(void* base, int row, int head) const {
        int64_t place = int64_t(rows.slots[row]) * m.kv_heads + head;
        return static_cast<T*>(base) + place * m.max_len * m.head_dim;
    }

    T* normalised(const float* gain) const {
        T* x = own();
        for (int r = 0; r < n; ++r)
            normalise(hidden + int64_t(r) * width, gain, width, m.epsilon, x + int64_t(r) * width);
        return x;
    }

    // Where a row's hidden state lies in a boundary buffer, a ring for each slot.
    float* ring(float* buffer, int row) const {
        int64_t place = int64_t(rows.slots[row]) * m.ring + rows.positions[row] % m.ring;
        return buffer + place * width;
    }
};

}  // namespace decodebench
