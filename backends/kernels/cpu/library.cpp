// Decoding rows of a Llama-family model on a CPU: one parallel region per segment of layers.
//
// A row's numbers depend on that row alone: every output is one chain of multiply-adds in the order
// of its inputs, attention is cut at fixed positions, and partial results are combined in order. So
// the number of rows, their company and the number of threads change no bit.

#include "ceilings.h"
#include "checks.h"
#include "draft.h"
#include "fill.h"
#include "heads.h"
#include "sampling.h"

using namespace decodebench;

namespace {

template <class Do> void parallel(const Model* model, const Rows* rows, Do act) {
    auto go = [&](const auto& work) {
#pragma omp parallel num_threads(model->threads)
        {
            act(work);
            release_tiles();
        }
    };
    if (model->dtype == 0) go(Heads<float>(*model, *rows));
    else if (model->dtype == 1) go(Heads<Bf16>(*model, *rows));
    else go(Heads<Fp16>(*model, *rows));
}

// From boundary buffer `from` (null: from given states or the tokens' embeddings) through layers first to last - 1
// to the head's boundary, and there, where the head has rows, to their most probable tokens.
// False, and nothing done, for rows that the model has no room or no token for.
bool run(const Model& model, const Rows& rows, int first, int last, float* from, float* to,
         const Head& head) {
    if (!fits(model, rows)) return false;
    parallel(&model, &rows, [&](const auto& work) {
        if (first < last) work.segment(first, last, from, to);
        if (head.count) {
#pragma omp barrier
            work.top(head);
        }
    });
    return true;
}

}  // namespace

extern "C" {

// Bytes that all threads share, and that each has for itself, for `rows` rows.
void scratch_bytes(const Model* model, int32_t rows, int64_t* shared, int64_t* own) {
    typed(model->dtype, [&](auto number) {
        Model sized = *model;
        sized.shared = nullptr;
        Work<decltype(number)> work(sized, Rows{rows, nullptr, nullptr, nullptr});
        *shared = work.bytes;
        *own = work.own_bytes();
    });
}

// Floats that a head's `parts` hold for `rows` rows.
int64_t parts_floats(int64_t rows, int64_t vocabulary) {
    return rows * SUMMARY * (vocabulary / (BLOCK * LANES) + 1);
}

int32_t advance(const Model* model, const Rows* rows, int32_t first, int32_t last, float* from,
                float* to, const Head* head) {
    return run(*model, *rows, first, last, from, to, *head);
}

// Keys and values of layers first to last - 1 from the hidden states in boundary buffer `from` (null:
// from given ones).
// False, and nothing done, for rows that the model has no room for.
int32_t fill_rows(const Model* model, const Rows* rows, int32_t first, int32_t last, float* from) {
    if (!fits(*model, *rows)) return false;
    parallel(model, rows, [&](const auto& work) { work.fill(first, last, from); });
    return true;
}

// `advance` through all layers, then again for what was found, as long as the continuations go.
int32_t continue_greedy(const Model* model, const Rows* rows, int32_t layers, float* to,
                        const Head* head, const Continuation* wanted) {
    return continue_rows(*rows, *head, *wanted, [&](const Rows& here, const Head& asked, auto) {
        // not `advance`: the C library has one too, and a call may be bound to that
        return run(*model, here, 0, layers, nullptr, to, asked);
    });
}

// Likewise with sampled tokens: `draws` of each continuation.
int32_t continue_sampled(const Model* model, const Rows* rows, int32_t layers, float* to,
                         const Head* head, const Continuation* wanted, const Draws* draws) {
    Race race(head->vocabulary, head->count, model->threads);
    std::unique_ptr<float[]> logits(new float[head->count * head->vocabulary]);
    auto step = [&](const Rows& here, const Head& asked, const int32_t* who) {
        if (!fits(*model, here)) return false;
        auto at = [&](int i) {
            int ahead = reads_ahead(*model) ? 2 : 1;
            return draw_of(*draws, who[i], here.positions[asked.rows[i]] + ahead);
        };
        parallel(model, &here, [&](const auto& work) {
            work.segment(0, layers, nullptr, to);
#pragma omp barrier
            work.logits(asked, logits.get());
#pragma omp barrier
            race.run(logits.get(), asked.count, at, asked.tokens, asked.confidences);
        });
        return true;
    };
    return continue_rows(*rows, *head, *wanted, step);
}

// The choices from (rows, vocabulary) logits, for `positions` of sequences.
void draw_rows(const float* logits, int32_t rows, int64_t vocabulary, const Draws* draws,
               const int32_t* positions, int32_t threads, int32_t* tokens, float* sure) {
    Race race(vocabulary, rows, threads);
    auto at = [&](int i) { return draw_of(*draws, i, positions[i]); };
#pragma omp parallel num_threads(race.threads)
    race.run(logits, rows, at, tokens, sure);
}

// What a draw is made of: noise of the first `count` tokens, and the weights of `count` logits.
void draw_parts(const float* logits, int64_t count, double temperature, uint64_t seed,
                int32_t position, double* noises, double* weights) {
    race_parts(logits, count, temperature, noise_start(seed, position), noises, weights);
}

int32_t head_logits(const Model* model, const Rows* rows, const Head* head, float* out) {
    if (!fits(*model, *rows)) return false;
    parallel(model, rows, [&](const auto& work) { work.logits(*head, out); });
    return true;
}

// Of the last call's trees, rows that stay: their keys and values go to their places in the cache.
void keep_rows(const Model* model, const Rows* rows, int32_t count, const int32_t* numbers) {
    auto go = [&](const auto& work) { work.keep(count, numbers); };
    if (model->dtype == 0) go(Heads<float>(*model, *rows));
    else if (model->dtype == 1) go(Heads<Bf16>(*model, *rows));
    else go(Heads<Fp16>(*model, *rows));
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

// How many inputs of an output lie side by side in a packed matrix.
int32_t group(int32_t dtype) {
    if (dtype == 0) return Dot<float>::GROUP;
    return dtype == 1 ? Dot<Bf16>::GROUP : Dot<Fp16>::GROUP;
}

// The confidence measures of early exit, for `rows` rows of `size` numbers of type `dtype`.
void margins(int32_t dtype, const void* logits, int64_t rows, int64_t size, float* out) {
    typed(dtype, [&](auto number) {
        auto from = static_cast<const decltype(number)*>(logits);
        for (int64_t r = 0; r < rows; ++r) out[r] = margin(from + r * size, size);
    });
}

void cosines(int32_t dtype, const void* a, const void* b, int64_t rows, int64_t size, float* out) {
    typed(dtype, [&](auto number) {
        auto one = static_cast<const decltype(number)*>(a);
        auto two = static_cast<const decltype(number)*>(b);
        for (int64_t r = 0; r < rows; ++r)
            out[r] = cosine(one + r * size, two + r * size, size);
    });
}

void probabilities(int32_t dtype, const void* x, const float* weight, float bias, int64_t rows,
                   int64_t size, float* out) {
    typed(dtype, [&](auto number) {
        auto from = static_cast<const decltype(number)*>(x);
        for (int64_t r = 0; r < rows; ++r)
            out[r] = probability(from + r * size, weight, bias, size);
    });
}

void arrange_fill(int32_t dtype, const void* both, int64_t rows, int64_t layers, int64_t kv_heads,
                  int64_t head_dim, const int64_t* positions, const float* cos_sin,
                  const int64_t* slots, int64_t slots_per_layer, void* keys, void* values,
                  int64_t* places) {
    typed(dtype, [&](auto number) {
        typedef decltype(number) T;
        arrange(static_cast<const T*>(both), rows, layers, kv_heads, head_dim, positions, cos_sin,
                slots, slots_per_layer, static_cast<T*>(keys), static_cast<T*>(values), places);
    });
}

// Reads `bytes` once, a share by each thread, as 1, 4 or 16 streams; the number given back depends on
// them.
int32_t read_all(const void* from, int64_t bytes, int32_t threads, int32_t streams) {
    int32_t found = 0;
#pragma omp parallel num_threads(threads) reduction(^ : found)
    {
        Range mine = share(bytes / LINE);
        const char* at = static_cast<const char*>(from) + mine.first * LINE;
        int64_t lines = mine.last - mine.first;
        found ^= streams == 1   ? read_lines<1>(at, lines)
                 : streams == 4 ? read_lines<4>(at, lines)
                                : read_lines<16>(at, lines);
    }
    return found;
}

// Whether products in bfloat16 now go through matrix tiles: where they are wanted, the compiler was
// let use them and the system gives them. Not to be changed while anything is in a cache.
int32_t use_tiles(int32_t wanted) {
#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
    tiles_allowed = wanted && ask_for_tiles();
#endif
    return Tiles<Bf16>::used();
}

const char* instructions() {
    if (Tiles<Bf16>::used()) return "amx";
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
