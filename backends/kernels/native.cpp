// Decoding rows of a Llama-family model on a CPU: one parallel region per segment of layers.
//
// A row's numbers depend on that row alone: every output is one chain of multiply-adds in the order
// of its inputs, attention is cut at fixed positions, and partial results are combined in order. So
// the number of rows, their company and the number of threads change no bit.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <omp.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

typedef float Vec __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
constexpr int LANES = 16;
constexpr int CHUNK = 128;       // keys per attention task
constexpr int QUERIES = 12;      // queries that share the reading of their keys
constexpr int BLOCK = 4;        // blocks of 16 vocabulary entries per task of a head
constexpr float LOWEST = -3.4e38f;

struct Bf16 { uint16_t bits; };
typedef _Float16 Fp16;
typedef Fp16 Fp16s __attribute__((vector_size(32)));

template <class V, class T> inline V read(const T* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline Vec load(const float* from) { return read<Vec>(from); }
inline Vec load(const Bf16* from) {
    Words words = __builtin_convertvector(read<Halves>(from), Words) << 16;
    return read<Vec>(&words);
}
inline Vec load(const Fp16* from) { return __builtin_convertvector(read<Fp16s>(from), Vec); }

inline float widen(float x) { return x; }
inline float widen(Fp16 x) { return static_cast<float>(x); }
inline float widen(Bf16 x) {
    uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    return read<float>(&bits);
}

inline void narrow(float x, float& to) { to = x; }
inline void narrow(float x, Fp16& to) { to = static_cast<Fp16>(x); }
inline void narrow(float x, Bf16& to) {
    uint32_t bits = read<uint32_t>(&x);
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    to.bits = nan ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(__AVX512F__)
inline float sum(Vec v) { return _mm512_reduce_add_ps((__m512)v); }
#else
inline float sum(Vec v) {
    float lanes[LANES];
    std::memcpy(lanes, &v, sizeof v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}
#endif

// exp by range reduction and a polynomial of degree 6; relative error below 3e-7.
inline Vec exponential(Vec x) {
    x = x < -87.0f ? Vec{} - 87.0f : x;
    x = x > 88.0f ? Vec{} + 88.0f : x;
    const float magic = 12582912.0f;  // adding it rounds to an integer
    Vec n = (x * 1.44269504f + magic) - magic;
    Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Ints bits = read<Ints>(&p) + (__builtin_convertvector(n, Ints) << 23);
    return read<Vec>(&bits);
}

// Matrices are packed so that the lanes of a vector are 16 outputs: blocks of 16 outputs, in each the
// inputs one after another, GROUP of them side by side. No sum over lanes is ever needed.
template <class T> struct Dot {
    static constexpr int GROUP = 1;
    static Vec weights(const T* from) { return load(from); }
    static Vec inputs(const T* from) { return Vec{} + widen(*from); }
    static Vec add(Vec total, Vec w, Vec x) { return total + w * x; }
};
#if defined(__AVX512BF16__)
template <> struct Dot<Bf16> {
    static constexpr int GROUP = 2;
    static __m512i weights(const Bf16* from) { return _mm512_loadu_si512(from); }
    static __m512i inputs(const Bf16* from) { return _mm512_set1_epi32(read<int32_t>(from)); }
    static Vec add(Vec total, __m512i w, __m512i x) {
        return (Vec)_mm512_dpbf16_ps((__m512)total, (__m512bh)w, (__m512bh)x);
    }
};
#endif

// Where input k of output n lies in a packed matrix of `size` inputs.
template <class T> inline int64_t packed(int64_t n, int64_t k, int64_t size) {
    constexpr int G = Dot<T>::GROUP;
    return n / LANES * LANES * size + k / G * G * LANES + n % LANES * G + k % G;
}

// put(row, block, values): N blocks of outputs for R rows.
template <class T, int R, int N, class Put>
inline void tile(const T* weights, const T* x, int64_t size, int row, int64_t block, Put put) {
    typedef Dot<T> D;
    Vec total[R][N] = {};
    const T* w = weights + block * LANES * size;
    x += row * size;
    for (int64_t k = 0; k < size; k += D::GROUP) {
        decltype(D::weights(w)) column[N];
        for (int n = 0; n < N; ++n) column[n] = D::weights(w + n * LANES * size + k * LANES);
        for (int r = 0; r < R; ++r) {
            auto value = D::inputs(x + r * size + k);
            for (int n = 0; n < N; ++n) total[r][n] = D::add(total[r][n], column[n], value);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) put(row + r, block + n, total[r] + n);
}

template <class T, int N, class Put>
inline void tiles(const T* weights, const T* x, int64_t size, int rows, int64_t block, Put put) {
    int row = 0;
    for (; row + 6 <= rows; row += 6) tile<T, 6, N>(weights, x, size, row, block, put);
    switch (rows - row) {
        case 5: return tile<T, 5, N>(weights, x, size, row, block, put);
        case 4: return tile<T, 4, N>(weights, x, size, row, block, put);
        case 3: return tile<T, 3, N>(weights, x, size, row, block, put);
        case 2: return tile<T, 2, N>(weights, x, size, row, block, put);
        case 1: return tile<T, 1, N>(weights, x, size, row, block, put);
    }
}

// All rows of x (rows, size) times the blocks first to last - 1 of a packed matrix.
template <class T, class Put>
inline void product(const T* weights, const T* x, int64_t size, int rows, int64_t first,
                    int64_t last, Put put) {
    int64_t block = first;
    if (rows == 1)
        for (; block + 8 <= last; block += 8) tile<T, 1, 8>(weights, x, size, 0, block, put);
    for (; block + 4 <= last; block += 4) tiles<T, 4>(weights, x, size, rows, block, put);
    if (block + 2 <= last) tiles<T, 2>(weights, x, size, rows, block, put), block += 2;
    if (block < last) tiles<T, 1>(weights, x, size, rows, block, put);
}

struct Range { int64_t first, last; };

// The share of this thread of `count` items.
inline Range share(int64_t count) {
    int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    return {count * me / threads, count * (me + 1) / threads};
}

template <class T> inline void store(Vec value, T* to) {
    for (int i = 0; i < LANES; ++i) narrow(value[i], to[i]);
}
inline void store(Vec value, float* to) { std::memcpy(to, &value, sizeof value); }
#if defined(__AVX512BF16__)
inline void store(Vec value, Bf16* to) {
    __m256bh narrowed = _mm512_cvtneps_pbh((__m512)value);
    std::memcpy(to, &narrowed, sizeof narrowed);
}
#endif

template <class T>
void normalise(const float* x, const float* gain, int size, float epsilon, T* out) {
    Vec squares = {};
    for (int i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
    float scale = 1.0f / std::sqrt(sum(squares) / size + epsilon);
    for (int i = 0; i < size; i += LANES) store(load(x + i) * scale * load(gain + i), out + i);
}

}  // namespace

extern "C" {

struct Layer {
    const float *input_norm, *post_norm, *qkv_bias, *q_norm, *k_norm;
    const void *qkv, *out, *gate_up, *down;
    void *keys, *values;  // (slots, kv_heads, max_len, head_dim)
};

struct Model {
    int32_t dtype, width, feed_forward, heads, kv_heads, head_dim, max_len, ring, threads;
    float epsilon;
    const void* embedding;
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
    const float* from;  // the boundary buffer before it
    float* parts;
    int32_t count;
    const int32_t* rows;
    int32_t* tokens;
    float* confidences;
};

}

namespace {

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

    // Scores to weights: exponentials against their maximum; both kept in `to`.
    void soften(float* weight, int count, float* to) const {
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

    const float* ring(const float* buffer, int row) const {
        int64_t place = int64_t(rows.slots[row]) * m.ring + rows.positions[row] % m.ring;
        return buffer + place * width;
    }

    // Inside a parallel region, like all above.
    void segment(int first, int last, const float* from, float* to) const {
        Range mine = share(width);
        const T* table = static_cast<const T*>(m.embedding);
        for (int r = 0; r < n; ++r)
            for (int64_t i = mine.first; i < mine.last; ++i)
                hidden[int64_t(r) * width + i] =
                    from ? ring(from, r)[i] : widen(table[int64_t(rows.tokens[r]) * width + i]);
#pragma omp barrier
        for (int l = first; l < last; ++l) run(m.layers[l]);
        for (int r = 0; r < n; ++r)
            std::memcpy(const_cast<float*>(ring(to, r)) + mine.first,
                        hidden + int64_t(r) * width + mine.first,
                        sizeof(float) * (mine.last - mine.first));
    }

    T* head_input(const Head& head) const {
        T* x = own();
        for (int i = 0; i < head.count; ++i)
            normalise(ring(head.from, head.rows[i]), m.norm, width, m.epsilon,
                      x + int64_t(i) * width);
        return x;
    }

    // Per row and task of the vocabulary: maximum, its place and the sum of exponentials.
    void top(const Head& head) const {
        int64_t blocks = (head.vocabulary + LANES - 1) / LANES, tasks = (blocks + BLOCK - 1) / BLOCK;
        const T* x = head_input(head);
        Range mine = share(tasks);
        for (int64_t task = mine.first; task < mine.last; ++task) {
            int64_t first = task * BLOCK, last = first + BLOCK < blocks ? first + BLOCK : blocks;
            int64_t count = head.vocabulary - first * LANES;
            if (count > BLOCK * LANES) count = BLOCK * LANES;
            for (int base = 0; base < head.count; base += 12) {
                int some = head.count - base < 12 ? head.count - base : 12;
                alignas(64) float logits[12][BLOCK * LANES];
                product(static_cast<const T*>(head.matrix), x + int64_t(base) * width, width, some,
                        first, last, [&](int r, int64_t block, const Vec* value) {
                            store(*value, logits[r] + (block - first) * LANES);
                        });
                for (int r = 0; r < some; ++r)
                    summarise(logits[r], int(count), first * LANES,
                              head.parts + ((base + r) * tasks + task) * 3);
            }
        }
#pragma omp barrier
#pragma omp master
        for (int i = 0; i < head.count; ++i)
            best(head.parts + i * tasks * 3, tasks, head.tokens + i, head.confidences + i);
    }

    void summarise(float* logits, int count, int64_t start, float* out) const {
        int place = 0;
        for (int i = 1; i < count; ++i) place = logits[i] > logits[place] ? i : place;
        int32_t token = int32_t(start + place);
        float pair[2];
        soften(logits, count, pair);
        out[0] = pair[0];
        std::memcpy(out + 1, &token, sizeof token);
        out[2] = pair[1];
    }

    static void best(const float* parts, int64_t tasks, int32_t* token, float* confidence) {
        int64_t place = 0;
        for (int64_t b = 1; b < tasks; ++b) place = parts[b * 3] > parts[place * 3] ? b : place;
        float top = parts[place * 3], total = 0.0f;
        for (int64_t b = 0; b < tasks; ++b) total += std::exp(parts[b * 3] - top) * parts[b * 3 + 2];
        std::memcpy(token, parts + place * 3 + 1, sizeof *token);
        *confidence = 1.0f / total;
    }

    void logits(const Head& head, float* out) const {
        const T* x = head_input(head);
        Range mine = share((head.vocabulary + LANES - 1) / LANES);
        product(static_cast<const T*>(head.matrix), x, width, head.count, mine.first, mine.last,
                [&](int r, int64_t block, const Vec* value) {
                    int64_t left = head.vocabulary - block * LANES;
                    std::memcpy(out + r * head.vocabulary + block * LANES, value,
                                sizeof(float) * (left < LANES ? left : LANES));
                });
    }
};

template <class Do> void parallel(const Model* model, const Rows* rows, Do act) {
    auto go = [&](const auto& work) {
#pragma omp parallel num_threads(model->threads)
        act(work);
    };
    if (model->dtype == 0) go(Work<float>(*model, *rows));
    else if (model->dtype == 1) go(Work<Bf16>(*model, *rows));
    else go(Work<Fp16>(*model, *rows));
}

}  // namespace

extern "C" {

// Bytes that all threads share for `rows` rows.
int64_t shared_bytes(const Model* m, int64_t rows) {
    int64_t keys = int64_t(m->kv_heads) * m->head_dim, queries = int64_t(m->heads) * m->head_dim;
    int64_t chunks = (m->max_len + CHUNK - 1) / CHUNK;
    return rows * 4 * (m->width + queries * 2 + 2 * keys + m->feed_forward +
                       m->heads * chunks * (m->head_dim + LANES)) + 1024;
}

// Floats that a head's `parts` hold for `rows` rows.
int64_t parts_floats(int64_t rows, int64_t vocabulary) {
    return rows * 3 * (vocabulary / (BLOCK * LANES) + 1);
}

// From boundary buffer `from` (null: from the tokens' embeddings) through layers first to last - 1
// to the head's boundary, and there, where the head has rows, to their most probable tokens.
void advance(const Model* model, const Rows* rows, int32_t first, int32_t last, const float* from,
             float* to, const Head* head) {
    parallel(model, rows, [&](const auto& work) {
        if (first < last) work.segment(first, last, from, to);
        if (head->count) {
#pragma omp barrier
            work.top(*head);
        }
    });
}

void head_logits(const Model* model, const Rows* rows, const Head* head, float* out) {
    parallel(model, rows, [&](const auto& work) { work.logits(*head, out); });
}

// A matrix (outputs, inputs) of 2- or 4-byte numbers, by `dtype`, as the products read it. `to` has
// room for a multiple of 16 outputs.
void pack(int32_t dtype, const void* from, int64_t outputs, int64_t inputs, void* to) {
    auto fill = [&](auto number) {
        typedef decltype(number) T;
        int64_t blocks = (outputs + LANES - 1) / LANES;
#pragma omp parallel for
        for (int64_t n = 0; n < blocks * LANES; ++n)
            for (int64_t k = 0; k < inputs; ++k)
                static_cast<T*>(to)[packed<T>(n, k, inputs)] =
                    n < outputs ? static_cast<const T*>(from)[n * inputs + k] : T{};
    };
    if (dtype == 0) fill(float{});
    else if (dtype == 1) fill(Bf16{});
    else fill(Fp16{});
}

const char* instructions() {
#if defined(__AVX512BF16__)
    return "avx512bf16";
#elif defined(__AVX512F__)
    return "avx512";
#elif defined(__AVX2__)
    return "avx2";
#else
    return "generic";
#endif
}

}
