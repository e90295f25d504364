// Sampling by an exponential race, bit for bit as `backends/engine/sampling.py` defines it.

#pragma once

#include <cmath>
#include <memory>

#include "wide.h"

extern "C" {

// How each of a call's rows is sampled.
struct Draws {
    const double *temperatures, *top_ps;
    const uint64_t* seeds;
};

}

namespace decodebench {

struct Draw {
    double temperature, top_p;
    uint64_t seed;
    int32_t position;
};

inline Draw draw_of(const Draws& draws, int number, int32_t position) {
    return {draws.temperatures[number], draws.top_ps[number], draws.seeds[number], position};
}

// The choices of a call's rows, made by the threads of a parallel region together: each has its
// share of the vocabulary. One alone makes those that are sooner made than waited for.
struct Race {
    static constexpr int AT_ONCE = 8;           // rows whose weights and scores are held
    static constexpr int64_t ENOUGH = 1 << 12;  // tokens for several threads

    int64_t vocabulary, padded;
    int threads;  // at most
    std::unique_ptr<uint64_t[]> weights;  // of tokens, out of 2^44; as are all masses
    std::unique_ptr<double[]> scores;

    Race(int64_t size, int rows, int most)
        : vocabulary(size), padded(rounded(size, WIDE)), threads(rows * size < ENOUGH ? 1 : most),
          weights(new uint64_t[padded * (rows < AT_ONCE ? rows : AT_ONCE)]),
          scores(new double[padded * (rows < AT_ONCE ? rows : AT_ONCE)]),
          parts(new Part[int64_t(AT_ONCE) * threads]) {}

    // at(i): row i's `Draw`. Writes its token, -1 where no highest logit is finite, and the
    // probability of that before `top_p`.
    template <class At>
    void run(const float* logits, int count, At at, int32_t* tokens, float* sure) const {
        if (omp_get_thread_num() >= team()) return;
        for (int base = 0; base < count; base += AT_ONCE) {
            int some = count - base < AT_ONCE ? count - base : AT_ONCE;
            auto one = [&](int r) { return at(base + r); };
            enter(logits + base * vocabulary, some, one);
            settle(some, one, tokens + base, sure + base);
            wait();
        }
    }

private:
    // What a thread found in its share of a row.
    struct alignas(64) Part {
        float top;
        uint64_t total, before;
        Leader leader;
    };
    std::unique_ptr<Part[]> parts;

    Part& part(int row, int thread) const { return parts[int64_t(row) * threads + thread]; }

    int team() const { return threads > 1 ? omp_get_num_threads() : 1; }

    // Where a thread's share begins.
    int64_t begin(int thread) const { return padded / WIDE * thread / team() * WIDE; }

    void wait() const {
        if (threads > 1) {
#pragma omp barrier
        }
    }

    template <class At> void enter(const float* logits, int count, At at) const {
        int me = omp_get_thread_num();
        int64_t first = begin(me), last = begin(me + 1), real = last < vocabulary ? last : vocabulary;
        for (int r = 0; r < count; ++r)
            part(r, me).top = top_logit(logits + r * vocabulary, first, real);
        wait();
        for (int r = 0; r < count; ++r) {
            float top = -INFINITY;
            for (int t = 0; t < team(); ++t) top = part(r, t).top > top ? part(r, t).top : top;
            Draw how = at(r);
            Part& here = part(r, me);
            here.total = race(logits + r * vocabulary, vocabulary, first, last, top, how.temperature,
                              noise_start(how.seed, how.position), weights.get() + r * padded,
                              scores.get() + r * padded);
            here.leader = lead(r, first, last, Bound{});
        }
        wait();
    }

    // The best score leads. One whose token lies behind what `top_p` keeps is out, and so are all
    // behind it. Every thread comes to the same decisions.
    template <class At> void settle(int count, At at, int32_t* tokens, float* sure) const {
        int me = omp_get_thread_num();
        int64_t first = begin(me), last = begin(me + 1);
        Leader leaders[AT_ONCE];
        double limits[AT_ONCE];
        bool going[AT_ONCE];
        int left = 0;
        for (int r = 0; r < count; ++r) {
            uint64_t total = 0;
            for (int t = 0; t < team(); ++t) total += part(r, t).total;
            double top_p = at(r).top_p;
            limits[r] = top_p * double(total);
            going[r] = top_p < 1;
            left += going[r];
            leaders[r] = first_of(r);
            if (!going[r] && me == 0) decide(r, leaders[r], total, tokens, sure);
        }
        while (left) {
            for (int r = 0; r < count; ++r)
                if (going[r]) part(r, me).before = ahead(r, first, last, leaders[r]);
            wait();
            for (int r = 0; r < count; ++r) {
                if (!going[r]) continue;
                uint64_t before = 0, total = 0;
                for (int t = 0; t < team(); ++t) before += part(r, t).before, total += part(r, t).total;
                going[r] = !(double(before) < limits[r]) && before;
                left -= !going[r];
                if (!going[r] && me == 0) decide(r, leaders[r], total, tokens, sure);
                if (going[r]) part(r, me).leader = lead(r, first, last, bound(r, leaders[r]));
            }
            wait();
            for (int r = 0; r < count; ++r)
                if (going[r]) leaders[r] = first_of(r);
        }
    }

    Leader lead(int row, int64_t first, int64_t last, Bound bound) const {
        return leader(weights.get() + row * padded, scores.get() + row * padded, first, last, bound);
    }

    uint64_t ahead(int row, int64_t first, int64_t last, const Leader& leader) const {
        return mass_ahead(weights.get() + row * padded, first, last, bound(row, leader));
    }

    Bound bound(int row, const Leader& leader) const {
        return {weights[row * padded + leader.token], leader.token};
    }

    Leader first_of(int row) const {
        Leader found = part(row, 0).leader;
        for (int t = 1; t < team(); ++t)
            if (part(row, t).leader.score > found.score) found = part(row, t).leader;
        return found;
    }

    void decide(int row, const Leader& leader, uint64_t total, int32_t* tokens, float* sure) const {
        tokens[row] = total ? int32_t(leader.token) : -1;
        double weight = double(weights[row * padded + leader.token]);
        sure[row] = total ? float(weight / double(total)) : 0.0f;
    }
};

}  // namespace decodebench
