// What a call is given, and the memory that its threads share.

#pragma once

#include <vector>

#include "products.h"

extern "C" {

struct Layer {
    const float *input_norm, *post_norm, *qkv_bias, *q_norm, *k_norm;
    const void *qkv, *out, *gate_up, *down;
    void *keys, *values;  // (slots, kv_heads, max_len, head_dim)
    // Of EAGLE-3's layer: the norm of the token's embedding, which attention reads in front of the
    // normed state; null: attention reads the state alone.
    const float* token_norm;
};

struct Model {
    int32_t dtype, width, feed_forward, heads, kv_heads, head_dim, max_len, ring, threads;
    int32_t slots, positions, vocabulary;  // max_len: positions, rounded up
    float epsilon;
    const void* embedding;  // packed, as every matrix
    const float *norm, *cosines, *sines;  // (max_len, head_dim / 2)
    const Layer* layers;
    char* shared;    // see shared_bytes
    char* own;       // own_bytes for each thread
    int64_t own_bytes;
    const uint8_t* skipped;  // of each layer 1: its attention, 2: its MLP; null: nothing
    const int32_t* taps;  // by number of layers run: where in `states` they go, -1: nowhere; or null
    float* states;        // (slots, positions, tap_count, width)
    int32_t tap_count;
};

// Ordinary rows of a slot are consecutive positions. With `back` they are a tree in preorder: row r
// follows row r - back[r], 0 for the first of a slot, which follows what the cache holds. Then keys
// and values go `aside` as well, and hidden states into the boundary's row r.
struct Rows {
    int32_t count;
    const int32_t *slots, *positions, *tokens;
    const int32_t* back;  // null: ordinary rows
    void* aside;          // (count, layers, 2, kv_heads, head_dim)
    int32_t layers;
    // What the first layer begins with, (count, width). Null: the tokens' embeddings or a boundary; of
    // a layer with a token_norm its own output one position before.
    const float* states;
};

// A head for some of the rows: their numbers, and the most probable token and its probability, or
// how far that is above the second's; token -1 where the logits are NaN.
struct Head {
    const void* matrix;
    int64_t vocabulary;
    float* from;  // the boundary buffer before it
    float* parts;
    int32_t count;
    const int32_t* rows;
    int32_t* tokens;
    float* confidences;
    int32_t margins;  // whether it is how far
};

}

namespace decodebench {

constexpr int CHUNK = 128;      // keys per attention task
constexpr int QUERIES = PANEL;  // queries that share the reading of their keys
constexpr int FEW = 16;         // rows whose norms every thread computes for itself
constexpr int SPLIT = 64;       // most rows whose keys several threads may share

// Whether rows are trees in preorder: each follows a row on the way from its slot's first to the last.
inline bool is_preorder(const Rows& rows) {
    std::vector<int> way;
    for (int r = 0; r < rows.count; ++r) {
        int parent = r - rows.back[r];
        if (r == 0 || rows.slots[r] != rows.slots[r - 1]) {
            if (parent != r) return false;
            way.clear();
        } else {
            while (!way.empty() && way.back() != parent) way.pop_back();
            if (way.empty() || rows.positions[r] != rows.positions[parent] + 1) return false;
        }
        way.push_back(r);
    }
    return true;
}

// Whether the model has a slot, a position and a token for every row, and trees are trees.
inline bool fits(const Model& model, const Rows& rows) {
    auto inside = [](int32_t number, int32_t end) { return number >= 0 && number < end; };
    for (int r = 0; r < rows.count; ++r)
        if (!inside(rows.slots[r], model.slots) || !inside(rows.positions[r], model.positions) ||
            !inside(rows.tokens[r], model.vocabulary))
            return false;
    return !rows.back || is_preorder(rows);
}

// Whether rows are those of EAGLE-3's layer: at position t it reads the state of t and the token of
// t + 1, so that what it predicts is the token of t + 2.
inline bool reads_ahead(const Model& model) { return model.layers[0].token_norm; }

// Takes pieces of memory, one after another, each on a cache line of its own.
struct Pieces {
    char* start;
    int64_t bytes = 0;
    template <class V> V* take(int64_t count) {
        char* here = start ? start + bytes : nullptr;
        bytes += rounded(count * int64_t(sizeof(V)), 64);
        return reinterpret_cast<V*>(here);
    }
};

template <class T> struct Work {
    const Model& m;
    const Rows& rows;
    int n, width, entering, queries, keys, group, chunks, part_size;  // entering: attention's inputs
    float *hidden, *embedded, *qkv, *partial;  // shared by the threads
    T* query;
    Inputs<T> whole, attended, activated;
    int64_t bytes;

    Work(const Model& model, const Rows& given)
        : m(model), rows(given), n(given.count), width(m.width),
          entering(reads_ahead(m) ? 2 * width : width), queries(m.heads * m.head_dim),
          keys(m.kv_heads * m.head_dim), group(m.heads / m.kv_heads),
          chunks((m.max_len + CHUNK - 1) / CHUNK), part_size(m.head_dim + LANES) {
        Pieces shared{m.shared};
        auto inputs = [&](int64_t size) {
            return Inputs<T>::tiled(shared.take<T>(tiled_size(n, size)), n, size);
        };
        hidden = shared.take<float>(int64_t(n) * width);
        embedded = shared.take<float>(reads_ahead(m) ? int64_t(n) * width : 0);
        qkv = shared.take<float>(int64_t(n) * (queries + 2 * keys));
        query = shared.take<T>(int64_t(n) * queries);
        partial = shared.take<float>(int64_t(n < SPLIT ? n : SPLIT) * m.heads * chunks * part_size);
        whole = inputs(entering);
        attended = inputs(queries);
        activated = inputs(m.feed_forward);
        bytes = shared.bytes;
    }

    char* own() const { return m.own + m.own_bytes * omp_get_thread_num(); }

    // What a thread has for itself: rows of inputs, or parts of an attention, or a product's room.
    int64_t own_bytes() const {
        int64_t parts = int64_t(QUERIES) * chunks * part_size * 4, room = room_floats(n) * 4;
        int64_t few = tiled_size(FEW, entering) * int64_t(sizeof(T));
        int64_t most = parts > room ? parts : room;
        return rounded(most > few ? most : few, 64);
    }
    float* room() const { return reinterpret_cast<float*>(own()); }

    T* cache(void* base, int row, int head) const {
        int64_t place = int64_t(rows.slots[row]) * m.kv_heads + head;
        return static_cast<T*>(base) + place * m.max_len * m.head_dim;
    }

    // Rows under their norm, as inputs of a product.
    template <class Row> Inputs<T> normalised(int count, const float* gain, Row row) const {
        return filled(count, width, [&](const Inputs<T>& x, int64_t r) { norm(x, r, 0, row(r), gain); });
    }

    // A row's inputs from number `start` on: a vector of the model's width under a norm.
    void norm(const Inputs<T>& x, int64_t r, int start, const float* from, const float* gain) const {
        normalise(from, gain, width, m.epsilon,
                  [&](int i, Vec value) { store(value, x.place(r, start + i)); });
    }

    // Inputs of a product, fill(x, row) each: few by every thread, many by all together.
    template <class Fill> Inputs<T> filled(int count, int size, Fill fill) const {
        bool few = count <= FEW;
        T* to = few ? reinterpret_cast<T*>(own()) : whole.at;
        Inputs<T> x = Inputs<T>::tiled(to, count, size);
        Range mine = few ? Range{0, count} : share(count);
        for (int64_t r = mine.first; r < mine.last; ++r) fill(x, r);
        if (!few) {
#pragma omp barrier
        }
        return x;
    }

    // The end of the rows that stand one after another in a sequence, from `row` on.
    int run_end(int row) const {
        int end = row + 1;
        while (end < n && rows.slots[end] == rows.slots[row] && !(rows.back && rows.back[end] != 1))
            ++end;
        return end;
    }

    // Where a row's hidden state lies in a boundary buffer, a ring for each slot.
    float* ring(float* buffer, int row) const {
        if (rows.back) return buffer + int64_t(row) * width;
        int64_t place = int64_t(rows.slots[row]) * m.ring + rows.positions[row] % m.ring;
        return buffer + place * width;
    }
};

}  // namespace decodebench
