#include "layout/structs.hpp"

#include <iterator>
#include <type_traits>

#include "layout/bitslice.hpp"
#include "layout/category_tables.hpp"
#include "layout/programs.hpp"
#include "layout/rankwalk.hpp"
#include "layout/walk.hpp"

namespace gpuqs {
namespace {

template <class Member> constexpr Field field(const char* name, size_t offset) {
    using Item = std::remove_extent_t<Member>;
    static_assert(std::is_arithmetic_v<Item>, "numbers, or arrays of them");
    const char kind = std::is_floating_point_v<Item> ? 'f' : std::is_signed_v<Item> ? 'i' : 'u';
    return {name, kind, sizeof(Item), sizeof(Member) / sizeof(Item), offset};
}

#define FIELD(member) field<decltype(In::member)>(#member, offsetof(In, member))

// The fields of each struct `In`.
template <class Value> struct ItemFields {
    using In = Item<Value>;
    static constexpr Field all[] = {FIELD(key), FIELD(link)};
};
struct RankEntryFields {
    using In = RankEntry;
    static constexpr Field all[] = {FIELD(column), FIELD(first), FIELD(nan_left)};
};
struct RankTestFields {
    using In = RankTest;
    static constexpr Field all[] = {FIELD(entry), FIELD(position), FIELD(first)};
};
struct JumpWordFields {
    using In = JumpWord;
    static constexpr Field all[] = {FIELD(entry), FIELD(position), FIELD(onward)};
};
struct CategoryTableFields {
    using In = CategoryTable;
    static constexpr Field all[] = {FIELD(feature), FIELD(routing), FIELD(first_column), FIELD(n_columns),
                                    FIELD(n_codes), FIELD(n_rows),  FIELD(codes),        FIELD(rows)};
};
struct SegmentFields {
    using In = Segment;
    static constexpr Field all[] = {FIELD(column), FIELD(high), FIELD(last), FIELD(flags)};
};
struct TreeletFields {
    using In = Treelet;
    static constexpr Field all[] = {FIELD(predicate), FIELD(slot), FIELD(first), FIELD(end), FIELD(zero)};
};
struct RunFields {
    using In = Run;
    static constexpr Field all[] = {FIELD(kind), FIELD(count)};
};
struct TreeNodeFields {
    using In = TreeNode;
    static constexpr Field all[] = {FIELD(predicate), FIELD(left), FIELD(right)};
};

template <class Fields> constexpr Struct described(const char* name) {
    return {name, sizeof(typename Fields::In), std::begin(Fields::all), std::end(Fields::all)};
}

constexpr Struct structs[] = {
    described<ItemFields<float>>("Item<float>"),
    described<ItemFields<double>>("Item<double>"),
    described<RankEntryFields>("RankEntry"),
    described<RankTestFields>("RankTest"),
    described<JumpWordFields>("JumpWord"),
    described<CategoryTableFields>("CategoryTable"),
    described<SegmentFields>("Segment"),
    described<TreeletFields>("Treelet"),
    described<RunFields>("Run"),
    described<TreeNodeFields>("TreeNode"),
};

}  // namespace

const Struct* begin_structs() { return std::begin(structs); }
const Struct* end_structs() { return std::end(structs); }

}  // namespace gpuqs
