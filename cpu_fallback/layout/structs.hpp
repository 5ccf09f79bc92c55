// How the compiler has laid out the structs that Python fills as NumPy structured arrays, for Python to compare.
#pragma once
#include <cstddef>

namespace gpuqs {

struct Field {
    const char* name;
    char kind;     // 'i', 'u' or 'f'
    size_t bytes;  // of one item
    size_t items;  // more than one: an array
    size_t offset;
};

struct Struct {
    const char* name;
    size_t bytes;
    const Field* begin;
    const Field* end;
};

const Struct* begin_structs();
const Struct* end_structs();

}  // namespace gpuqs
