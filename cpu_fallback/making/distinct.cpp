#include "making/distinct.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "making/parts.hpp"

namespace gpuqs {
namespace {

uint64_t bits_of(int64_t key) { return static_cast<uint64_t>(key); }
uint64_t bits_of(int32_t key) { return static_cast<uint64_t>(key); }
uint64_t bits_of(double key) {
    key += 0.0;  // -0.0 becomes 0.0
    uint64_t bits;
    std::memcpy(&bits, &key, sizeof bits);
    return bits;
}

// An odd number that looks random (splitmix64).
uint64_t odd_number(uint64_t seed) {
    seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
    seed = (seed ^ seed >> 27) * 0x94d049bb133111eb;
    return (seed ^ seed >> 31) | 1;
}

// Numbers keys in the order in which they are first met: a hash table with open addressing.
class Numbers {
public:
    // The factors differ each time, so that no file can hold keys that all collide. The two factors are unrelated: else a
    // difference of groups could cancel one of bits.
    Numbers() : Numbers(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())) {}

    int32_t number_of(uint64_t bits, int32_t group, int64_t at) {
        uint64_t slot = slot_of(bits, group);
        for (; slots_[slot].number >= 0; slot = (slot + 1) & mask_)
            if (slots_[slot].bits == bits && slots_[slot].group == group) return slots_[slot].number;
        const int32_t number = static_cast<int32_t>(first_.size());
        slots_[slot] = {bits, group, number};
        first_.push_back(at);
        if (first_.size() * 2 > slots_.size()) resize(slots_.size() * 4);
        return number;
    }
    // A row's hash, for number_of. Rows that differ have different hashes, unless somebody chose the rows so that they collide.
    uint64_t bits_of(const char* row, int64_t bytes) const {
        uint64_t bits = 0;
        for (int64_t b = 0; b < bytes; b += sizeof bits) {
            uint64_t word = 0;
            std::memcpy(&word, row + b, std::min<int64_t>(sizeof word, bytes - b));
            bits = (bits ^ word ^ word >> 32) * factor_;
            bits ^= bits >> 29;
        }
        return bits;
    }
    const std::vector<int64_t>& first() const { return first_; }

private:
    struct Slot {
        uint64_t bits;
        int32_t group, number;  // memory holds fewer keys than this counts
    };

    explicit Numbers(uint64_t seed)
        : factor_(odd_number(seed * 0x9e3779b97f4a7c15)), group_factor_(odd_number((seed + 1) * 0x9e3779b97f4a7c15)) {
        resize(1 << 12);
    }
    uint64_t slot_of(uint64_t bits, int32_t group) const {
        bits = (bits ^ bits >> 32) * factor_ + static_cast<uint64_t>(group) * group_factor_;
        return (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9 >> shift_;
    }
    void resize(size_t size) {
        const std::vector<Slot> old = std::move(slots_);
        slots_.assign(size, {0, 0, -1});
        mask_ = size - 1;
        shift_ = 64 - __builtin_ctzll(size);
        for (const Slot& kept : old) {
            if (kept.number < 0) continue;
            uint64_t slot = slot_of(kept.bits, kept.group);
            while (slots_[slot].number >= 0) slot = (slot + 1) & mask_;
            slots_[slot] = kept;
        }
    }

    const uint64_t factor_, group_factor_;
    std::vector<Slot> slots_;
    std::vector<int64_t> first_;
    uint64_t mask_ = 0;
    int shift_ = 0;
};

// Keys in [0, range), looked up in a table of that size.
template <class Key> std::vector<int64_t> distinct_in(int64_t range, const Key* keys, int64_t n, int32_t* number) {
    std::vector<int64_t> first(range, -1), sorted;
    for (int64_t i = n; i-- > 0;) first[keys[i]] = i;
    std::vector<int32_t> place(range);
    for (int64_t key = 0; key < range; key++) {
        if (first[key] < 0) continue;
        place[key] = static_cast<int32_t>(sorted.size());
        sorted.push_back(first[key]);
    }
    for (int64_t i = 0; i < n; i++) number[i] = place[keys[i]];
    return sorted;
}

// The size of a lookup table for the keys, if it needs no more entries than there are keys; else 0.
template <class Key> int64_t small_range(const Key* keys, int64_t n) {
    Key least = 0, most = 0;
    for (int64_t i = 0; i < n; i++) least = std::min(least, keys[i]), most = std::max(most, keys[i]);
    return least == 0 && most < n ? int64_t{most} + 1 : 0;
}

}  // namespace

template <class Key> std::vector<int64_t> distinct(const Key* keys, const int32_t* groups, int64_t n, int32_t* number) {
    if constexpr (std::is_integral_v<Key>)
        if (const int64_t range = groups ? 0 : small_range(keys, n)) return distinct_in(range, keys, n, number);
    Numbers met;
    for (int64_t i = 0; i < n; i++) number[i] = met.number_of(bits_of(keys[i]), groups ? groups[i] : 0, i);
    const std::vector<int64_t>& first = met.first();
    std::vector<std::tuple<int32_t, Key, int32_t>> order;  // group, key, number
    order.reserve(first.size());
    for (const int64_t at : first) order.emplace_back(groups ? groups[at] : 0, keys[at], static_cast<int32_t>(order.size()));
    std::sort(order.begin(), order.end());
    std::vector<int32_t> place(first.size());
    std::vector<int64_t> sorted;
    sorted.reserve(first.size());
    for (const auto& [group, key, met_as] : order) {
        place[met_as] = static_cast<int32_t>(sorted.size());
        sorted.push_back(first[met_as]);
    }
    for (int64_t i = 0; i < n; i++) number[i] = place[number[i]];
    return sorted;
}

template std::vector<int64_t> distinct(const double*, const int32_t*, int64_t, int32_t*);
template std::vector<int64_t> distinct(const int32_t*, const int32_t*, int64_t, int32_t*);
template std::vector<int64_t> distinct(const int64_t*, const int32_t*, int64_t, int32_t*);

std::vector<int64_t> distinct_rows(const void* rows, int64_t bytes, int64_t n, int64_t most, int32_t* number) {
    const auto row = [=](int64_t i) { return static_cast<const char*>(rows) + i * bytes; };
    Numbers met;
    for (int64_t i = 0; i < n; i++) {
        number[i] = met.number_of(met.bits_of(row(i), bytes), 0, i);
        if (static_cast<int64_t>(met.first().size()) > most) return {};
        if (std::memcmp(row(i), row(met.first()[number[i]]), bytes) != 0) return {};  // different rows have the same hash
    }
    return met.first();
}

std::vector<int64_t> counts(const int32_t* numbers, int64_t n, int64_t range) {
    // Two counters are kept for each number, as neighbours are often equal, and a counter that was just written is slow to read.
    std::vector<int64_t> even(range), odd(range);
    for (int64_t i = 0; i + 1 < n; i += 2) even[numbers[i]]++, odd[numbers[i + 1]]++;
    if (n % 2) even[numbers[n - 1]]++;
    for (int64_t number = 0; number < range; number++) even[number] += odd[number];
    return even;
}

std::vector<uint8_t> flagged(const int32_t* numbers, const uint8_t* flags, uint8_t bit, int64_t n, int64_t range) {
    std::vector<uint8_t> met(range);
    for (int64_t i = 0; i < n; i++) met[numbers[i]] |= flags[i] & bit;
    return met;
}

bool are_ranks(const double* keys, const int32_t* groups, int64_t n, int64_t n_groups, const double* distinct, const int64_t* offsets,
               int64_t n_distinct, const int32_t* rank, int n_threads) {
    if (offsets[0] != 0 || offsets[n_groups] != n_distinct) return false;
    for (int64_t g = 0; g < n_groups; g++) {
        if (offsets[g + 1] < offsets[g] || offsets[g + 1] > n_distinct) return false;
        for (int64_t k = offsets[g] + 1; k < offsets[g + 1]; k++)
            if (!(distinct[k - 1] < distinct[k])) return false;
    }
    std::vector<uint8_t> met(n_distinct);
    std::atomic<bool> right{true};
    each_part(n, n_threads, [&](int64_t, int64_t start, int64_t end) {
        for (int64_t i = start; i < end; i++) {
            const int64_t first = offsets[groups[i]];
            if (rank[i] < 0 || rank[i] >= offsets[groups[i] + 1] - first || distinct[first + rank[i]] != keys[i]) {
                right = false;
                return;
            }
            set_for_all(&met[first + rank[i]]);
        }
    });
    return right && std::find(met.begin(), met.end(), 0) == met.end();
}

// If there are fewer predicates than this for each one of a superblock, looking through all is faster than sorting the superblock's.
constexpr int64_t kLookedThrough = 16;

Superblocks number_predicates(const int32_t* predicate, int64_t n_predicates, const int64_t* first_node, int64_t n_blocks,
                              int64_t max_predicates, int64_t max_nodes, int32_t* number) {
    Superblocks superblocks;
    std::vector<uint8_t> is_in(n_predicates);  // the superblock
    std::vector<int32_t> number_of(n_predicates);
    std::vector<int32_t> met;  // the superblock's predicates
    for (int64_t block = 0, end = 0; block < n_blocks; block = end) {
        met.clear();
        for (; end < n_blocks; end++) {
            const size_t before = met.size();
            for (int64_t node = first_node[end]; node < first_node[end + 1]; node++)
                if (!is_in[predicate[node]]) {
                    is_in[predicate[node]] = 1;
                    met.push_back(predicate[node]);
                }
            const bool too_many =
                static_cast<int64_t>(met.size()) > max_predicates || first_node[end + 1] - first_node[block] > max_nodes;
            if (end > block && too_many) {
                for (size_t i = before; i < met.size(); i++) is_in[met[i]] = 0;
                met.resize(before);
                break;
            }
        }
        if (n_predicates < kLookedThrough * static_cast<int64_t>(met.size())) {
            met.clear();
            for (int64_t p = 0; p < n_predicates; p++)
                if (is_in[p]) met.push_back(static_cast<int32_t>(p));
        } else {
            std::sort(met.begin(), met.end());
        }
        for (size_t i = 0; i < met.size(); i++) {
            number_of[met[i]] = static_cast<int32_t>(i);
            is_in[met[i]] = 0;
        }
        superblocks.distinct.insert(superblocks.distinct.end(), met.begin(), met.end());
        for (int64_t node = first_node[block]; node < first_node[end]; node++) number[node] = number_of[predicate[node]];
        superblocks.ends.push_back(end);
        superblocks.n_distinct.push_back(static_cast<int64_t>(met.size()));
    }
    return superblocks;
}

}  // namespace gpuqs
