// The keys and values that an early exit leaves for the layers above, made ready for one write.

#pragma once

#include "vectors.h"

namespace decodebench {

// Of each row's keys and values, layer by layer: keys rotated (halves, as GPT-NeoX pairs them) by the
// row's position, both gathered row by row and layer by layer, and where each belongs.
template <class T>
void arrange(const T* both, int64_t rows, int64_t layers, int64_t kv_heads, int64_t head_dim,
             const int64_t* positions, const float* cos_sin, const int64_t* slots,
             int64_t slots_per_layer, T* keys, T* values, int64_t* places) {
    int64_t size = kv_heads * head_dim, half = head_dim / 2;
    for (int64_t r = 0; r < rows; ++r) {
        const float* cosines = cos_sin + positions[r] * head_dim;
        const float* sines = cosines + half;
        for (int64_t place = r * layers, layer = 0; layer < layers; ++layer, ++place) {
            const T* from = both + 2 * place * size;
            T* to = keys + place * size;
            std::memcpy(values + place * size, from + size, size * sizeof(T));
            for (int64_t head = 0; head < kv_heads; ++head, from += head_dim, to += head_dim)
                for (int64_t i = 0; i < half; ++i) {
                    float one = widen(from[i]), two = widen(from[half + i]);
                    narrow(one * cosines[i] - two * sines[i], to[i]);
                    narrow(two * cosines[i] + one * sines[i], to[half + i]);
                }
            places[place] = slots[r] < 0 ? -1 : slots[r] + layer * slots_per_layer;
        }
    }
}

}  // namespace decodebench
